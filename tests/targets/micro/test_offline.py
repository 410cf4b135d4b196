"""Places of values that the file lays down: never more memory than the runtime's own plan, and kept by the runtime."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.targets.tflite.writer import with_note
from convertkit.targets.tflite_micro.arena import measured_arena
from convertkit.targets.tflite_micro.file import OFFLINE_PLAN, FileGraph, read_graphs
from convertkit.targets.tflite_micro.offline import plan_note, smallest
from convertkit.targets.tflite_micro.planner import Buffer, greedy, height, least
from tests import onnx_models
from tests.command_line import here
from tests.targets.micro.micro_packages import saved
from tests.targets.micro.test_footprint import REAL, assert_near, drawn

WIDTHS = (224, 192, 192, 224)
"""Of a chain of dense layers; the greedy plan puts its ends down first, and leaves no room between them."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    rng = np.random.default_rng(0)
    stored = [
        numpy_helper.from_array(rng.normal(0, 0.3, (taken, made)).astype(np.float32), f"w{place}")
        for place, (taken, made) in enumerate(pairwise(WIDTHS))
    ]
    nodes = [helper.make_node("MatMul", [f"v{place}", f"w{place}"], [f"v{place + 1}"]) for place in range(len(stored))]
    model = onnx_models.model(nodes, {"v0": [1, WIDTHS[0]]}, {f"v{len(stored)}": [1, WIDTHS[-1]]}, stored)
    return saved(model, tmp_path_factory.mktemp("chain") / "chain.onnx")


@pytest.fixture(scope="module")
def packages(chain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    return {
        plan: convertkit.export(
            chain, "tflite-micro", output=folder / plan, target_options={"tflite-micro": {"plan": plan}}
        )
        for plan in ("greedy", "offline")
    }


def test_the_arena_is_smaller_and_the_answers_the_same(packages):
    arenas = {plan: made.report["steps"][-1]["diagnosis"]["arena"] for plan, made in packages.items()}
    assert (arenas["greedy"]["head"], arenas["offline"]["head"]) == (2432, 1664)
    assert arenas["offline"]["head"] == 4 * (WIDTHS[0] + WIDTHS[1]), "no plan is below what one layer reads and makes"
    assert arenas["offline"]["bytes"] == arenas["greedy"]["bytes"] - 768
    sample = np.random.default_rng(1).normal(size=(1, WIDTHS[0])).astype(np.float32)
    first, second = (made.run({"v0": sample})["v3"] for made in packages.values())
    np.testing.assert_array_equal(first, second)


def test_the_file_holds_the_plan_and_nothing_else_changes(packages):
    plain, planned = ((made.path / "model.tflite").read_bytes() for made in packages.values())
    assert OFFLINE_PLAN.encode() not in plain
    assert with_note(plain, *plan_note(read_graphs(plain))) == planned
    before, after = read_graphs(plain)[0], read_graphs(planned)[0]
    assert (before.tensors, before.operators) == (after.tensors, after.operators)
    assert before.plan == ()
    laid = {index: offset for index, offset in enumerate(after.plan) if offset >= 0}
    assert set(laid) == {index for index, tensor in enumerate(after.tensors) if not tensor.constant}


def test_what_is_foretold_knows_the_plan(packages):
    assert_near(packages["offline"].path / "model.tflite")


@pytest.mark.nightly
@pytest.mark.parametrize("name", REAL)
def test_real_models_keep_a_plan_and_take_no_more(cases, name, tmp_path):
    model, path = (cases / name).read_bytes(), tmp_path / "planned.tflite"
    path.write_bytes(with_note(model, *plan_note(read_graphs(model))))
    assert_near(path)
    own = measured_arena(cases / name, read_graphs(model))
    assert measured_arena(path, read_graphs(path.read_bytes())).size <= own.size


def test_check_knows_the_plan(chain):
    said = [
        here("check", chain, "--target", "tflite-micro", "--tflite-micro-plan", plan) for plan in ("greedy", "offline")
    ]
    assert "values and scratch memory 2,432" in said[0].out
    assert "values and scratch memory 1,664" in said[1].out


@pytest.mark.parametrize("seed", range(5))
def test_no_plan_is_above_the_greedy_one(seed):
    wanted = drawn(seed, 25)
    offsets = smallest(wanted)
    assert least(wanted) <= height(wanted, offsets) <= height(wanted, greedy(wanted))
    for a, (one, at) in enumerate(zip(wanted, offsets, strict=True)):
        for other, place in zip(wanted[:a], offsets[:a], strict=True):
            assert at + one.size_bytes <= place or place + other.size_bytes <= at or not one.meets(other)


def test_scratch_memory_lies_where_the_runtime_puts_it():
    """It is no tensor, so that no plan can say where it is."""
    wanted = (Buffer(64, 0, 1, (0, 0)), Buffer(32, 1, 1), Buffer(48, 1, 2, (0, 1)), Buffer(64, 2, 3, (0, 2)))
    offsets = smallest(wanted)
    laid = [Buffer(b.size_bytes, b.first, b.last, b.tensor, at if b.tensor else None)
            for b, at in zip(wanted, offsets, strict=True)]  # fmt: skip
    assert greedy(laid) == offsets


def test_branches_and_loops_are_refused():
    graph = FileGraph((), (), (), ())
    with pytest.raises(Unsupported, match="reads the places of one graph, and the model has 2") as refused:
        plan_note((graph, graph))
    assert "--tflite-micro-plan greedy" in str(refused.value)
