"""State that a package keeps by itself: written as Core ML's state, run step by step, refused where there is none."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import convertkit
from convertkit.errors import ToolError, Unsupported, UsageError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.release.verify import verify_release
from convertkit.state import save_arrays
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.options import TARGETS, Choices
from convertkit.targets.coreml.package.program import read_package
from convertkit.targets.coreml.replay import replay
from convertkit.targets.coreml.runner import CoreMLRunner
from convertkit.targets.coreml.stage import CompileCoreML
from convertkit.targets.coreml.states import ROUNDED
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import Compiled, numbers

SUM = "test (float[1,4] x, {kind} state.h) => (float[1,4] y, {kind} next_state.h)"
ADDS = "{ next_state.h = Add(state.h, x) y = Mul(next_state.h, state.h) }"
KEPT = Choices(TARGETS["iOS18"], state=True)


def compiled(worker: Worker, text: str, folder: Path, choices: Choices = KEPT, **starts: np.ndarray) -> Compiled:
    """A model whose states begin at ``starts``, by their names without ``state.``."""
    folder.mkdir()
    save_arrays(folder / "initial_state.npz", {f"state.{name}": value for name, value in starts.items()})
    model = ir.from_proto(
        parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text.replace("state.", "state_")}')
    )
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.name = value.name.replace("state_", "state.")  # the text form knows no dots
    begins = folder / "initial_state.npz" if starts else None
    source = save_model(canonicalize(model), folder / "model.onnx", "test", begins)
    out = folder / "out"
    out.mkdir()
    stage = CompileCoreML(choices, worker=worker)
    artifact = stage.run(source, out)
    return Compiled(source, artifact, tuple((stage.diagnosis or {}).get("notes", ())))


@pytest.fixture(scope="module")
def summing(worker: Worker, tmp_path_factory) -> Compiled:
    folder = tmp_path_factory.mktemp("states") / "sum"
    return compiled(worker, SUM.format(kind="float[1,4]") + ADDS, folder, h=np.zeros((1, 4), np.float32))


def test_a_package_carries_its_state(summing: Compiled):
    """Without anyone giving or taking it, from zeros, as the sums that NumPy makes."""
    program = summing.program
    assert program.version == TARGETS["iOS18"]
    assert [each.name for each in program.inputs] == ["x"]
    assert [each.name for each in program.outputs] == ["y"]
    (feature,) = program.states
    assert (feature.name, feature.dtype, feature.shape) == ("state_h", "float16", (1, 4))
    assert summing.operations.count("read_state") == summing.operations.count("write_state") == 1
    evaluator, state = Evaluator(program.block), {"state_h": np.zeros((1, 4), np.float16)}
    before = np.zeros((1, 4), np.float32)
    for step in range(5):
        x = numbers(1, 4, seed=step)
        after = (before + x).astype(np.float16).astype(np.float32)
        found = evaluator.run({"x": x}, state=state)
        assert np.allclose(found["y"], (before + x) * before, atol=1e-6)
        assert np.array_equal(state["state_h"], after.astype(np.float16))
        before = after


def test_the_runner_gives_and_takes_it_as_every_other_does(summing: Compiled):
    assert [(spec.name, spec.dtype, spec.kept) for spec in (*summing.artifact.inputs, *summing.artifact.outputs)] == [
        ("x", "float32", False),
        ("state.h", "float16", True),
        ("y", "float32", False),
        ("next_state.h", "float16", True),
    ]
    summing.agree({"x": numbers(1, 4), "state.h": numbers(1, 4, seed=1)}, tolerance=2e-3)
    with CoreMLRunner(summing.artifact) as runner:
        found = runner.run({"x": np.ones((1, 4), np.float32), "state.h": np.full((1, 4), 2, np.float32)})
    assert np.array_equal(found["next_state.h"], np.full((1, 4), 3))
    assert summing.notes == (ROUNDED,)


def test_golden_vectors_go_on_from_one_to_the_next(summing: Compiled):
    folder = summing.artifact.path.parent
    vectors = json.loads((folder / "golden.json").read_text())["vectors"]
    assert [each["begins"] for each in vectors] == [True, False, False]
    state = np.zeros((1, 4), np.float32)
    for vector in vectors:
        assert set(vector["inputs"]) == {"x"}
        assert set(vector["outputs"]) == {"y"}
        x, y = (of(vector[side][name]) for side, name in (("inputs", "x"), ("outputs", "y")))
        assert np.allclose(y, (state + x) * state, rtol=1e-6, atol=1e-6)
        state = (state + x).astype(np.float16).astype(np.float32)


def test_the_swift_test_asks_for_state(summing: Compiled):
    source = (summing.artifact.path.parent / "GoldenTests.swift").read_text()
    assert "if vector.begins { state = model.makeState() }" in source
    assert "model.prediction(from: features, using: state)" in source
    swift = pytest.importorskip("tree_sitter_swift")
    from tree_sitter import Language, Parser

    assert not Parser(Language(swift.language())).parse(source.encode()).root_node.has_error


def test_half_precision_reads_its_state_without_a_cast(worker: Worker, tmp_path: Path):
    """What ``--fp16`` writes around float32 inputs and outputs goes where the state is float16 anyway."""
    body = "{ s = Cast<to=10>(state.h) c = Cast<to=10>(x) n = Add(s, c) m = Mul(n, n) "
    body += "y = Cast<to=1>(m) next_state.h = Cast<to=1>(n) }"
    made = compiled(worker, SUM.format(kind="float[1,4]") + body, tmp_path / "c", h=np.zeros((1, 4), np.float32))
    assert made.operations == ["read_state", "cast", "add", "mul", "cast", "identity", "write_state"]
    assert made.notes == ()


def test_what_core_ml_cannot_keep_stays_in_the_interface(worker: Worker, tmp_path: Path):
    text = "test (float[1,4] x, float[4] state.h, int64[1] state.at, float state.s) "
    text += "=> (float[1,4] y, float[4] next_state.h, int64[1] next_state.at, float next_state.s)"
    body = "{ one = Constant<value=int64[1]{1}>() two = Constant<value=float{2.0}>() "
    body += "next_state.at = Add(state.at, one) "
    body += "y = Add(x, state.h) m = ReduceSum<keepdims=0>(x) next_state.s = Add(state.s, m) "
    body += "next_state.h = Mul(state.h, two) }"
    starts = {"h": np.ones(4, np.float32), "at": np.zeros(1, np.int64), "s": np.zeros((), np.float32)}
    made = compiled(worker, text + body, tmp_path / "c", **starts)
    assert [feature.name for feature in made.program.states] == ["state_s"]
    assert [feature.name for feature in made.program.inputs] == ["x", "state_h", "state_at"]
    assert made.notes[2:] == (
        "state.h stays an input and an output: a state that begins at other values than zeros, as Core ML's do not",
        "state.at stays an input and an output: a state of int64, and Core ML's states are float16",
    )
    feed = {f"state.{name}": value for name, value in starts.items()}
    made.agree({"x": numbers(1, 4), **feed, "state.s": np.asarray(1.5, np.float32)}, tolerance=2e-3)


def test_what_cannot_be_kept_is_refused(worker: Worker, tmp_path: Path):
    text = SUM.format(kind="float[1,4]") + ADDS
    with pytest.raises(UsageError, match="--coreml-state: the model has no state"):
        compiled(worker, text.replace("state.h", "h"), tmp_path / "a")
    with pytest.raises(Unsupported, match="begins at other values than zeros") as refused:
        compiled(worker, text, tmp_path / "b", h=np.ones((1, 4), np.float32))
    assert refused.value.ways_out == ("no --coreml-state: an app carries the state",)
    alone = "test (float[1,4] x, float[1,4] state.h) => (float[1,4] next_state.h) { next_state.h = Add(state.h, x) }"
    with pytest.raises(Unsupported, match="no output besides the state"):
        compiled(worker, alone, tmp_path / "c", h=np.zeros((1, 4), np.float32))


def test_no_state_before_ios_18(summing: Compiled, tmp_path: Path):
    options = {"coreml": {"state": True, "deployment-target": "iOS17"}}
    with pytest.raises(UsageError, match="--coreml-state: iOS17 keeps no state between calls; iOS18 is the first"):
        convertkit.export(summing.source.path, target="coreml", output=tmp_path / "out", target_options=options)
    assert not (tmp_path / "out").exists()


def test_an_export_is_verified_from_call_to_call(summing: Compiled, tmp_path: Path):
    options = {"coreml": {"state": True}}
    made = convertkit.export(summing.source.path, target="coreml", output=tmp_path / "out", target_options=options)
    assert ROUNDED in made.notes
    ports = [*made.report["interface"]["inputs"], *made.report["interface"]["outputs"]]
    assert [port["kept"] for port in ports] == [False, True, False, True]
    assert ports[1]["sentence"] == "float16 1×4; state, kept by the model from call to call"
    package = made.artifact.path
    found = convertkit.load(package).run(np.ones((1, 4), np.float32))
    assert np.array_equal(found["next_state.h"], np.ones((1, 4)))
    sentences = {each.name: each.sentence for each in verify_release(package).checks}
    assert sentences == {"manifest.json": "5 files", "model.mlpackage": "3 golden vectors, simulated"}
    looked = convertkit.inspect(package)
    assert looked.format == "coreml"
    assert not [note for note in looked.notes if "cannot be listed" in note]
    vectors = json.loads(package.with_name("golden.json").read_text())
    vectors["vectors"][1]["begins"] = True
    package.with_name("golden.json").write_text(json.dumps(vectors))
    assert [text.split(" ")[1] for text in replay(package).wrong] == ["2:", "3:"]


def test_images_begin_with_fresh_state_each(worker: Worker, tmp_path: Path):
    text = "test (float[1,1,2,3] x, float[1,1,2,3] state.h) => (float[1,1,2,3] y, float[1,1,2,3] next_state.h)"
    body = "{ next_state.h = Add(state.h, x) y = Relu(next_state.h) }"
    choices = replace(KEPT, images=("x=gray,scale:0.0078125,bias:-1",))
    made = compiled(worker, text + body, tmp_path / "c", choices, h=np.zeros((1, 1, 2, 3), np.float32))
    vectors = json.loads((made.artifact.path.parent / "golden.json").read_text())["vectors"]
    assert [each["begins"] for each in vectors] == [True, True, True]


def test_a_write_of_another_shape_is_found(summing: Compiled):
    program = read_package(summing.artifact.path)
    block = replace(
        program.block, inputs=tuple((name, replace(kind, shape=(2, 4))) for name, kind in program.block.inputs)
    )
    with pytest.raises(
        ToolError, match=r"write_state .* has float16 \[1, 4\] for the state state_h, which is float16 \[2, 4\]"
    ):
        Evaluator(block).run({"x": numbers(1, 4)}, state={"state_h": np.zeros((1, 4), np.float16)})


def of(told: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(told["data"]), told["type"]).reshape(told["shape"])
