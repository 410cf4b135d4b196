"""Channels in another order: the model computes the same, and N of M neighbours hold more of what counts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.data.feeds import load_feeds
from convertkit.onnx.load import load_model
from convertkit.quantization import prune
from convertkit.quantization.graph.reordered import reordered_values
from convertkit.quantization.graph.units import constant
from convertkit.quantization.pruning.order import better_orders, exchanged, movable, reordered
from convertkit.quantization.pruning.patterns import Pattern, neighbours
from convertkit.quantization.pruning.products import find_products
from convertkit.quantization.pruning.rules import follow
from convertkit.quantization.recovery.stage import Recovered
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.installed import needs
from tests.quantization.models import artifact_of, images, model_of, small_cnn
from tests.quantization.test_prune import level, stage
from tests.quantization.test_prune_channels import CASES, SEQUENCES, case, flattened, opened, run, sequence

RNG = np.random.default_rng(5)
TWO_OF_FOUR = Pattern(0.5, 2, 4)
TIED = {"heads", "heads of one matrix", "gated by the other half", "a half and what is made of it"}
"""Where channels go together, so that most or all groups stay in their order."""


def shuffled(model: ir.Model) -> ir.Model:
    groups = movable(follow(model.graph))
    return reordered(model, {place: RNG.permutation(group.size) for place, group in enumerate(groups)})


@pytest.mark.parametrize("name", [*CASES, *SEQUENCES, "flattened"])
def test_any_order_computes_the_same(name: str) -> None:
    proto = flattened() if name == "flattened" else case(name) if name in CASES else sequence(name)
    model = opened(proto)
    shape = [size if isinstance(size, int) else 1 for size in model.graph.inputs[0].shape or ()]
    x = RNG.uniform(0, 8, shape).astype(np.float32)
    copy = shuffled(model)
    before, after = run(model, x), run(copy, x)
    assert np.allclose(after, before, rtol=1e-4, atol=1e-5 * np.abs(before).max())
    assert bool(reordered_values(copy.graph)) or name in TIED or not movable(follow(model.graph))


def test_most_structures_can_be_reordered() -> None:
    found = [name for name in CASES if movable(follow(opened(case(name)).graph))]
    assert len(found) > len(CASES) / 2


def test_what_moves_has_another_name_and_tells_what_it_was(tmp_path: Path) -> None:
    """Else a value would be compared with one that has other channels."""
    model = opened(case("residual"))
    copy = shuffled(model)
    names = {str(value.name) for node in model.graph for value in node.outputs}
    found = reordered_values(copy.graph)
    assert found
    assert {each.name for each in found.values()} <= names
    assert not names & set(found)
    values = {str(value.name): value for node in copy.graph for value in node.outputs}
    x = images(1)[:, :, :6, :6]
    for name, each in found.items():
        one, other = model.clone(), copy.clone()
        for graph, wanted in ((one.graph, each.name), (other.graph, name)):
            graph.outputs[:] = [value for node in graph for value in node.outputs if value.name == wanted]
        assert values[name].shape is not None
        assert np.allclose(np.take(run(one, x), each.entries, each.axis), run(other, x), rtol=1e-4, atol=1e-4)


def test_a_place_gets_the_channel_that_the_order_names() -> None:
    """And not the other way round, which computes the same and keeps less."""
    model = opened(crowded())
    (place,) = (place for place, group in enumerate(movable(follow(model.graph))) if group.size == 16)
    order = np.roll(np.arange(16), 3)
    copy = reordered(model, {place: order})
    (before, after) = (
        constant(next(n for n in each.graph if str(n.name).startswith("three")).inputs[1]) for each in (model, copy)
    )
    assert np.array_equal(after, before[:, order])


def kept(scores: np.ndarray) -> float:
    return float(scores[neighbours(scores[None], TWO_OF_FOUR, 1)[0]].sum())


def test_exchanges_find_what_all_orders_hold() -> None:
    for seed in range(6):
        scores = np.random.default_rng(seed).lognormal(0, 1.5, (12, 8))
        order = exchanged(scores, TWO_OF_FOUR)
        now = kept(scores if order is None else scores[:, order])
        best = max(
            kept(scores[:, [0, *some, *(each for each in range(1, 8) if each not in some)]])
            for some in itertools.combinations(range(1, 8), 3)
        )
        assert kept(scores) <= now
        assert now >= 0.97 * best


def test_an_order_that_nothing_gains_by_stays() -> None:
    scores = np.tile([[4.0, 3.0, 0.0, 0.0, 5.0, 2.0, 0.0, 0.0]], (3, 1))
    assert exchanged(scores, TWO_OF_FOUR) is None
    order = exchanged(np.sort(scores), TWO_OF_FOUR)
    assert order is not None
    assert kept(np.sort(scores)[:, order]) == kept(scores)


def crowded() -> onnx.ModelProto:
    """Of the channels between two layers the first eight of sixteen matter, so that neighbours crowd each other out."""
    rng = np.random.default_rng(0)
    loud = np.repeat([1.0, 0.05], 8).astype(np.float32)
    constants = {
        "w1": (rng.normal(0, 0.3, (16, 3, 3, 3)) * loud[:, None, None, None]).astype(np.float32),
        "w2": rng.normal(0, 0.2, (8, 16, 3, 3)).astype(np.float32),
        "w3": rng.normal(0, 0.2, (6, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "one", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "two"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "three", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"], "four"),
        helper.make_node("Conv", ["d", "w3"], ["e"], "five"),
        helper.make_node("GlobalAveragePool", ["e"], ["f"], "six"),
        helper.make_node("Flatten", ["f"], ["y"], "seven"),
    ]
    return model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 6]})


def test_a_weight_in_blocks_has_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are columns side by side, each of some channels with all their taps."""
    model, found = opened(crowded()), []
    for most in (144, 72):
        monkeypatch.setattr("convertkit.quantization.pruning.products.MOST_COLUMNS", most)
        products = [each for each in find_products(model.graph) if each.name.startswith("three")]
        assert [each.blocks for each in products] == [144 // most]
        found.append(better_orders(model, TWO_OF_FOUR, {each: np.square(each.rows) for each in products}))
    one, two = found
    assert one
    assert {place: order.tolist() for place, order in one.items()} == {
        place: order.tolist() for place, order in two.items()
    }


def test_a_better_order_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = artifact_of(crowded(), tmp_path)
    feeds, fresh = load_feeds(images(48), source.inputs), images(32, 9)
    made = stage("2:4", feeds).run(source, tmp_path)
    model = load_model(made.path)
    assert not reordered_values(model.graph), "what a file has no use for"
    assert any(str(each.name).endswith("_reordered") for each in model.graph)
    inner = next(each for each in find_products(model.graph) if each.name.startswith("three")).rows
    assert (np.count_nonzero(inner.reshape(8, 4, 4, 9), axis=2) <= 2).all(), "two of four neighbours at every tap"
    (tmp_path / "as_it_is").mkdir()
    monkeypatch.setattr("convertkit.quantization.pruning.zeros.better_orders", lambda *_: {})
    plain = stage("2:4", feeds).run(source, tmp_path / "as_it_is")
    assert not any(str(each.name).endswith("_reordered") for each in load_model(plain.path).graph)
    assert level(source, made, fresh) > level(source, plain, fresh) + 3


def test_a_student_in_another_order_is_taught_the_same() -> None:
    needs("torch")
    import torch

    from convertkit.quantization.recovery.network import Network
    from convertkit.quantization.recovery.training import targets, taught

    model = opened(small_cnn())
    teacher, student = Network(model), Network(shuffled(model))
    learnt = [each.name for each in targets(teacher, student)]
    assert set(learnt) & set(reordered_values(student.graph))
    samples = {"x": torch.from_numpy(images(4)[:, None])}
    wanted, got = taught(teacher, student)(samples, learnt), student(samples, learnt)
    for name, one, other in zip(learnt, wanted, got, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4), name


@pytest.mark.parametrize("minutes", [0.0001, 0.02])
def test_training_leaves_no_notes(tmp_path: Path, minutes: float) -> None:
    """One step gains nothing and is undone; a few hundred are kept."""
    needs("torch")
    source = artifact_of(crowded(), tmp_path)
    options = ExportOptions("x", prune="2:4", recover=minutes)
    inner = prune.stage(BuildContext(options, None, calibration=load_feeds(images(64), source.inputs)))  # type: ignore[arg-type]
    made = Recovered(inner, minutes, load_feeds(images(64), source.inputs), 0)
    model = load_model(made.run(source, tmp_path).path)
    assert made.diagnosis is not None
    assert made.diagnosis["recovered"]["kept"] == (minutes > 0.001)
    assert any(str(each.name).endswith("_reordered") for each in model.graph)
    assert not reordered_values(model.graph)
    inner_rows = next(each for each in find_products(model.graph) if each.name.startswith("three")).rows
    assert (np.count_nonzero(inner_rows.reshape(8, 4, 4, 9), axis=2) <= 2).all()
