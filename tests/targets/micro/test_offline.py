"""Places of values that the file lays down: never more memory than the runtime's own plan, and kept by the runtime."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.targets.tflite.writer import with_note
from convertkit.targets.tflite_micro.arena import measured_arena
from convertkit.targets.tflite_micro.file import OFFLINE_PLAN, FileGraph, FileOperator, FileTensor, read_graphs
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


def test_labels_stay_behind_the_plan(chain, packages, tmp_path):
    """And nothing else of the file changes with them."""
    names = "".join(f"class {place}\n" for place in range(WIDTHS[-1]))
    (tmp_path / "labels.txt").write_text(names)
    options = {"tflite-micro": {"plan": "offline"}}
    made = convertkit.export(
        chain, "tflite-micro", output=tmp_path / "out", label_file=tmp_path / "labels.txt", target_options=options
    )
    model = (made.path / "model.tflite").read_bytes()
    with zipfile.ZipFile(io.BytesIO(model)) as archive:
        assert archive.read("labels.txt").decode() == names
    laid = [read_graphs(each)[0].plan for each in (model, (packages["offline"].path / "model.tflite").read_bytes())]
    assert laid[0] == laid[1] != ()
    sample = np.random.default_rng(1).normal(size=(1, WIDTHS[0])).astype(np.float32)
    np.testing.assert_array_equal(made.run({"v0": sample})["v3"], packages["offline"].run({"v0": sample})["v3"])


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


def test_branches_have_places_of_their_own(tmp_path):
    """Two branches of the same dense layers, of which the second has one operator less."""
    stored = [numpy_helper.from_array(np.float32(0), "zero")]
    rng = np.random.default_rng(0)
    for place, (taken, made) in enumerate(pairwise(WIDTHS)):
        stored.append(numpy_helper.from_array(rng.normal(0, 0.3, (taken, made)).astype(np.float32), f"w{place}"))

    def branch(name: str, tail: tuple[str, ...]) -> onnx.GraphProto:
        operators = [("MatMul", [f"w{place}"]) for place in range(len(WIDTHS) - 1)] + [(each, []) for each in tail]
        values = ["x", *(f"{name}{place}" for place in range(len(operators)))]
        nodes = [
            helper.make_node(operator, [values[place], *more], [values[place + 1]])
            for place, (operator, more) in enumerate(operators)
        ]
        made = helper.make_tensor_value_info(values[-1], onnx.TensorProto.FLOAT, [1, WIDTHS[-1]])
        return helper.make_graph(nodes, name, [], [made])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("a", ("Relu",)), else_branch=branch("b", ())),
    ]
    model = onnx_models.model(nodes, {"x": [1, WIDTHS[0]]}, {"y": [1, WIDTHS[-1]]}, stored)
    source, found = saved(model, tmp_path / "branches.onnx"), {}
    for plan in ("greedy", "offline"):
        options = {"tflite-micro": {"plan": plan}}
        made = convertkit.export(source, "tflite-micro", output=tmp_path / plan, target_options=options)
        arena = made.report["steps"][-1]["diagnosis"]["arena"]
        assert arena["bytes"] - 64 <= arena["foretold"] <= arena["bytes"] + 256
        answers = [made.run({"x": np.full((1, WIDTHS[0]), sign, np.float32)})["y"] for sign in (1, -1)]
        found[plan] = arena["head"], answers
    assert found["offline"][0] < found["greedy"][0] - 512
    assert np.array_equal(found["offline"][1], found["greedy"][1])
    assert (found["offline"][1][1] < 0).any(), "the branch without a Relu ran"
    graphs = read_graphs((tmp_path / "offline" / "model.tflite").read_bytes())
    assert len(graphs) == 3
    assert all(max(graph.plan) >= 0 and len(graph.plan) == len(graph.tensors) for graph in graphs)


def test_places_of_state_stay_open():
    """The runtime looks for state of every subgraph among the first places."""
    value = FileTensor("v", "float32", (4,), False, False, 0, 0.0, 0, False)
    state = replace(value, variable=True)
    main = FileGraph((value, value, value), (FileOperator("ADD", (0, 1), (2,)),), (0, 1), (2,))
    called = FileGraph((value, state), (), (), ())
    _, note = plan_note((main, called))
    assert np.frombuffer(note, "<i4").tolist()[:3] == [1, 0, 5]
    places = np.frombuffer(note, "<i4").tolist()[3:]
    assert places[0] >= 0
    assert places[1] == -1, "where the called graph has its state"
    assert places[2] >= 0
