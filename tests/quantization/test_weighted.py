"""Values counted by how much the outputs depend on them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.search.influence import influence
from convertkit.quantization.search.plan import Plan, Ranges, Traits
from convertkit.quantization.search.weighted import affordable_samples, weighted
from tests.quantization.models import model_of, small_cnn

FEATURES = 6


def gated() -> ir.Model:
    """``t`` holds small and large values; behind it the large ones are multiplied by nothing."""
    keeps = np.eye(FEATURES, dtype=np.float32)
    keeps[-1, -1] = 0
    nodes = [
        helper.make_node("Neg", ["x"], ["t"], "tensor"),
        helper.make_node("MatMul", ["t", "w"], ["y"], "product"),
    ]
    return canonicalize(ir.from_proto(model_of(nodes, {"w": keeps}, {"x": [2, FEATURES]}, {"y": [2, FEATURES]})))


def feeds(count: int = 8) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    sizes = np.float32([1, 1, 1, 1, 1, 6])
    return [{"x": (random.normal(0, 1, (2, FEATURES)) * sizes).astype(np.float32)} for _ in range(count)]


def test_what_no_output_depends_on_hardly_counts() -> None:
    statistics = observe(gated(), ["t"], feeds(), {})
    found = weighted(gated(), statistics, feeds(), {}, 0)
    histogram = found["t"]
    far = histogram.counts[np.abs(histogram.centres) > 5].sum()
    assert 0 < far < 0.02 * histogram.total
    plain = statistics["t"].histogram
    assert plain.counts[np.abs(plain.centres) > 5].sum() > 0.05 * plain.total


def profile() -> QuantProfile:
    return QuantProfile(name="test", operators={}, activation="int8", symmetric=False)


def plan(method: str) -> Plan:
    return Plan(frozenset(), method)


def test_groups_need_the_weights_of_all_their_values() -> None:
    statistics = observe(gated(), ["t"], feeds(), {})
    found = weighted(gated(), statistics, feeds(), {}, 0)
    ranges = Ranges(statistics, profile(), Traits(weighted=found))
    names = ("t", "unknown")
    assert ranges.of(names, lambda: statistics["t"], plan("weighted-mse")) == Ranges(statistics, profile()).of(
        names, lambda: statistics["t"], plan("mse")
    )


def test_values_beyond_what_was_seen_count_at_the_end() -> None:
    statistics = {"t": Statistics(low=-1.0, high=1.0, samples=1)}
    found = weighted(gated(), statistics, feeds(2), {}, 0)
    assert found["t"].counts[[0, -1]].sum() > 0


def test_the_same_numbers_every_time() -> None:
    model = canonicalize(ir.from_proto(small_cnn()))
    random = np.random.default_rng(1)
    samples = [{"x": random.normal(0, 1, (1, 3, 12, 12)).astype(np.float32)} for _ in range(4)]
    statistics = observe(model, ["r1", "s"], samples, {})
    one, other = (weighted(model, statistics, samples, {}, 0) for _ in range(2))
    assert set(one) == {"r1", "s"}
    assert all(np.array_equal(one[name].counts, other[name].counts) for name in one)


def test_large_inputs_get_fewer_samples() -> None:
    model = canonicalize(ir.from_proto(small_cnn()))
    assert affordable_samples(model, {"x": np.zeros((1, 3, 12, 12), np.float32)}) == 64
    assert affordable_samples(model, {"x": np.broadcast_to(np.float32(0), (1, 3, 4000, 4000))}) == 2


def test_infinities_and_what_lies_between_kept_values_do_not_count() -> None:
    """One value in a hundred is infinite; of many values evenly spread ones stand for all."""
    statistics = {"t": Statistics(low=-4.0, high=4.0, samples=1)}
    keeps = np.eye(100, dtype=np.float32)
    nodes = [helper.make_node("Neg", ["x"], ["t"], "tensor"), helper.make_node("MatMul", ["t", "w"], ["y"], "product")]
    shape: dict[str, list[int | str]] = {"x": [300, 100]}
    model = canonicalize(ir.from_proto(model_of(nodes, {"w": keeps}, shape, {"y": [300, 100]})))
    x = np.random.default_rng(0).normal(0, 1, (300, 100)).astype(np.float32)
    with_marks = x.copy()
    with_marks[:, 7] = np.inf
    plain, marked = (weighted(model, statistics, [{"x": each}] * 2, {}, 0)["t"] for each in (x, with_marks))
    assert plain.total == pytest.approx(2.0**52, rel=0.06)
    assert marked.counts[[0, -1]].sum() == 0


def test_tensors_of_which_few_values_are_kept_count_whole() -> None:
    """The output depends as much on each of 30,000 values as on their sum."""
    nodes = [
        helper.make_node("Neg", ["x"], ["t"], "many"),
        helper.make_node("ReduceSum", ["t", "axes"], ["s"], "one", keepdims=1),
        helper.make_node("MatMul", ["s", "w"], ["y"], "product"),
    ]
    constants = {"w": np.ones((1, 1), np.float32), "axes": np.array([0, 1])}
    model = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": [300, 100]}, {"y": [1, 1]})))
    random = np.random.default_rng(0)
    samples = [{"x": random.normal(0, 1, (300, 100)).astype(np.float32)} for _ in range(2)]
    found = weighted(model, observe(model, ["t", "s"], samples, {}), samples, {}, 0)
    assert found["t"].total / found["s"].total == pytest.approx(30000, rel=0.01)


def chosen_rows() -> ir.Model:
    """Rows whose sum is large are multiplied once more: how many depends on the data."""
    weight = np.random.default_rng(0).normal(0, 0.3, (FEATURES, FEATURES)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], "first"),
        helper.make_node("ReduceSum", ["t", "axes"], ["s"], "sums", keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["chosen"], "compares"),
        helper.make_node("Compress", ["t", "chosen"], ["rows"], "chooses", axis=0),
        helper.make_node("MatMul", ["rows", "w"], ["y"], "second"),
    ]
    constants = {"w": weight, "axes": np.array([1]), "zero": np.float32(0)}
    return canonicalize(ir.from_proto(model_of(nodes, constants, {"x": [8, FEATURES]}, {"y": ["rows", FEATURES]})))


def test_outputs_whose_size_depends_on_the_data_tell_nothing() -> None:
    random = np.random.default_rng(2)
    samples = [{"x": random.normal(0, 1, (8, FEATURES)).astype(np.float32)} for _ in range(6)]
    assert list(influence(chosen_rows(), ["t"], samples, {}, 0)) == [{}] * 6
    statistics = observe(chosen_rows(), ["t"], samples, {})
    assert weighted(chosen_rows(), statistics, samples, {}, 0) == {}


def test_samples_in_batches_tell_nothing() -> None:
    keeps = np.eye(FEATURES, dtype=np.float32)
    nodes = [
        helper.make_node("Neg", ["x"], ["t"], "tensor"),
        helper.make_node("MatMul", ["t", "w"], ["y"], "product"),
    ]
    free = canonicalize(ir.from_proto(model_of(nodes, {"w": keeps}, {"x": ["N", FEATURES]}, {"y": ["N", FEATURES]})))
    batches = [{"x": np.ones((3, FEATURES), np.float32)}] * 2
    assert list(influence(free, ["t"], batches, {}, 0)) == [{}, {}]
    single = [{"x": np.ones((1, FEATURES), np.float32)}] * 2
    assert all(set(each) == {"t"} for each in influence(free, ["t"], single, {}, 0))
