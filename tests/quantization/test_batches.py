"""Batches of few samples: mixed in pairs, and moved as samples differ."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.quantization.pruning.variation import variation
from tests.quantization.models import model_of

torch = pytest.importorskip("torch")
from convertkit.quantization.recovery import training  # noqa: E402
from convertkit.quantization.recovery.batches import BATCH, Batches  # noqa: E402
from convertkit.quantization.recovery.network import Network  # noqa: E402

RNG = np.random.default_rng(5)


def generator() -> object:
    return torch.Generator().manual_seed(0)


def uniform(*shape: int) -> object:
    return torch.from_numpy(RNG.uniform(-1, 1, shape).astype(np.float32))


def test_what_is_added_has_the_covariance_of_the_samples() -> None:
    one = RNG.normal(0, 1, 64)
    samples = np.stack([one, 2 * one, 3 - one, np.full(64, 7.0)], axis=1).astype(np.float32)
    found = variation(samples.reshape(64, 2, 2))
    assert np.allclose(found.deviations.T @ found.deviations, np.cov(samples.T, bias=True), atol=1e-5)


def test_values_stay_within_the_range_of_the_samples_or_where_they_are() -> None:
    samples = uniform(40, 2, 3).clamp_min(0)
    batches = Batches({"x": samples}, {}, generator())
    outside = torch.full((8, 2, 3), 9.0)
    made = batches.varied({"x": torch.cat([samples, outside])})["x"]
    assert not torch.equal(made[:40], samples)
    assert (made[:40] >= samples.min(0).values).all()
    assert (made[:40] <= samples.max(0).values).all()
    assert (made[40:] >= samples.min(0).values).all()
    assert (made[40:] <= 9).all()


def test_inputs_move_together_and_values_that_never_change_stay() -> None:
    one = uniform(50, 3)
    one[:, 2] = 0.5
    samples = {"a": one, "b": 2 * one.double()}
    made = Batches(samples, {}, generator()).varied(samples)
    assert not torch.equal(made["a"], one)
    assert torch.allclose(made["b"], 2 * made["a"].double(), atol=1e-5)
    assert made["b"].dtype == torch.float64
    assert torch.equal(made["a"][:, 2], one[:, 2])


def test_half_of_a_batch_is_mixed_and_half_moved_as_samples_differ() -> None:
    """Of two samples on a line through the origin and one beside it, sums leave the triangle and mixtures do not."""
    samples = {"x": torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])}
    batches = Batches(samples, {}, generator())
    made = torch.cat([batches.next()["x"] for _ in range(20)]).reshape(20, BATCH, 2)
    inside = (made.sum(2) <= 1 + 1e-6) & (made >= -1e-6).all(2)
    assert inside[:, : BATCH // 2].all()
    assert not inside[:, BATCH // 2 :].all()
    assert ((made >= 0) & (made <= 1)).all()


def test_integers_are_taken_as_they_are() -> None:
    samples = {"ids": torch.arange(12).reshape(12, 1), "x": uniform(12, 4)}
    batch = Batches(samples, {}, generator()).next()
    assert torch.equal(batch["x"], samples["x"][batch["ids"][:, 0]])


def test_nothing_is_added_where_the_original_has_no_answer_then() -> None:
    """The root of a difference that is positive in all samples, and in all mixtures of them."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["d"], "difference"),
        helper.make_node("Pow", ["d", "half"], ["y"], "root"),
    ]
    constants = {"w": np.array([[1.0], [-1.0]], np.float32), "half": np.float32(0.5)}
    graph = ir.from_proto(model_of(nodes, constants, {"x": [1, 2]}, {"y": [1, 1]}))
    network = Network(graph)
    small, more = uniform(40, 1, 1), torch.from_numpy(RNG.exponential(1, (40, 1, 1)).astype(np.float32))
    samples = {"x": torch.cat([small + 0.01 + more, small], 2)}
    taught = training.Teacher(network, {})
    batch = training._batches(taught, ["y"], samples, 0)
    assert torch.equal(batch.varied(samples)["x"], samples["x"])
    answers = taught(batch.next(), ["y"])[0]
    assert answers.isfinite().all()
    assert not torch.equal(training._batches(taught, ["d"], samples, 0).varied(samples)["x"], samples["x"])


def test_masks_of_the_least_numbers_stay() -> None:
    samples = np.zeros((8, 3), np.float32)
    samples[::2, 1] = np.finfo(np.float32).min
    samples[:, 2] = np.arange(8)
    found = variation(samples)
    assert np.isfinite(found.deviations).all()
    made = found(samples, np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
    assert (made[:, :2] == samples[:, :2]).all()
    assert (made[:, 2] != samples[:, 2]).any()
