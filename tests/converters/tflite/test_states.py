"""Variables that change from call to call are inputs and outputs, ``state.NAME`` and ``next_state.NAME``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from handmade import T, const
from variable_files import Op, calls, write_graph

import convertkit
from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import parse, read_model
from convertkit.converters.tflite.source import TFLiteSource
from convertkit.converters.tflite.states import shown
from convertkit.errors import ToolError, Unsupported
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.replay import record
from convertkit.recipe import ExportOptions

VECTOR = T((3,))
TENSORS = {
    "x": VECTOR, "v": T((), "resource"), "w": T((), "resource"), "read": VECTOR, "sum": VECTOR, "again": VECTOR,
    "product": VECTOR, "old": VECTOR, "y": VECTOR,
}  # fmt: skip
START = {"v": const([1, -2, 4]), "w": const([0.5, 0.25, 3])}

TOTAL: list[Op] = [  # v becomes x + v; y is what v was
    ("VAR_HANDLE:v", (), ("v",)),
    ("READ_VARIABLE", ("v",), ("read",)),
    ("ADD", ("x", "read"), ("sum",)),
    ("ASSIGN_VARIABLE", ("v", "sum"), ()),
    ("MUL", ("sum", "read"), ("y",)),
]
READ_AGAIN: list[Op] = [  # v is read once more behind its change, and w takes what v was
    ("VAR_HANDLE:v", (), ("v",)),
    ("VAR_HANDLE:w", (), ("w",)),
    ("READ_VARIABLE", ("v",), ("read",)),
    ("ADD", ("x", "read"), ("sum",)),
    ("ASSIGN_VARIABLE", ("v", "sum"), ()),
    ("READ_VARIABLE", ("v",), ("again",)),
    ("READ_VARIABLE", ("w",), ("old",)),
    ("ASSIGN_VARIABLE", ("w", "read"), ()),
    ("MUL", ("again", "old"), ("product",)),
    ("ADD", ("product", "x"), ("y",)),
]
FEEDS = [np.random.default_rng(n).standard_normal(3).astype("f") for n in range(5)]


def opened(path: Path, workdir: Path) -> TFLiteSource:
    return TFLiteSource(path, ExportOptions(str(path), timeout_s=120), workdir)


@pytest.mark.parametrize("outputs", [("y",), ("sum", "y")], ids=["hidden", "given, too"])
@pytest.mark.parametrize("operators", [TOTAL, READ_AGAIN], ids=["total", "read again"])
def test_a_sequence_of_calls_is_the_files_own(tmp_path: Path, operators: list[Op], outputs: tuple[str, ...]):
    path = write_graph(tmp_path / "v.tflite", TENSORS, operators, ["x"], outputs, START)
    source = opened(path, tmp_path)
    wanted = calls(path, FEEDS)
    made = source.stage().run(source.artifact, tmp_path)
    for artifact, runner in ((source.artifact, source.runner()), (made, OnnxRunner(made))):
        with runner:
            recording = record("", artifact, runner, [{"x": value} for value in FEEDS])
        for got, each in zip(recording.outputs, wanted, strict=True):
            for name, value in zip(outputs, each, strict=True):
                np.testing.assert_allclose(got[name], value, rtol=1e-6)


def test_integers_keep_their_scale_and_the_start_its_values(tmp_path: Path):
    tensors = {
        "x": T((1, 4), "int8", scale=0.5, zero=3), "v": T((), "resource"), "read": T((1, 4), "int8", scale=0.25),
        "sum": T((1, 4), "int8", scale=0.25),
    }  # fmt: skip
    start = {"v": replace(const([[-128, 0, 5, 127]], "int8"), scale=0.25)}
    path = write_graph(tmp_path / "v.tflite", tensors, TOTAL[:-1], ["x"], ["sum"], start)
    result = convertkit.export(str(path), "tflite", output=tmp_path / "out", cache=False)
    assert [(each.name, each.dtype) for each in result.interface.inputs] == [("x", "int8"), ("state.v", "int8")]
    held = np.load(tmp_path / "out" / "initial_state.npz")["state.v"]
    np.testing.assert_array_equal(held, [[-128, 0, 5, 127]])
    feeds = [np.full((1, 4), value, "int8") for value in (3, 9, -40, 100)]
    for value, wanted in zip(feeds, calls(path, feeds), strict=True):
        got = result.run({"x": value, "state.v": held})
        held = got["next_state.v"]
        np.testing.assert_array_equal(got["sum"], wanted[0])


def test_a_variable_that_is_written_before_it_is_read_is_no_state(tmp_path: Path):
    operators = [TOTAL[0], ("ASSIGN_VARIABLE", ("v", "x"), ()), TOTAL[1], ("ADD", ("x", "read"), ("y",))]
    path = write_graph(tmp_path / "v.tflite", TENSORS, operators, ["x"], ["y"], {})
    model = read_model(path)
    found = shown(path.read_bytes(), model, model.signatures[0])
    assert found is not None
    assert not found.start
    assert [name for name, _ in found.signature.inputs] == ["x"]
    assert [op.builtin for op in found.model.subgraphs[0].operators] == ["ADD"]


@pytest.mark.parametrize("start", [{}, {"v": const([[1, -2, 4]])}, {"v": const([1, -2, 4], "int32")}])
def test_what_is_not_known_before_the_first_call_is_refused(tmp_path: Path, start: dict[str, T]):
    model = read_model(write_graph(tmp_path / "v.tflite", TENSORS, TOTAL, ["x"], ["y"], start))
    assert shown((tmp_path / "v.tflite").read_bytes(), model, model.signatures[0]) is None
    with pytest.raises(Unsupported, match="lives from call to call, which ONNX has as an input and an output"):
        to_onnx(model, model.signatures[0])


def test_the_edited_file_says_what_is_converted(tmp_path: Path):
    path = write_graph(tmp_path / "v.tflite", TENSORS, READ_AGAIN, ["x"], ["y"], START)
    model = read_model(path)
    found = shown(path.read_bytes(), model, model.signatures[0])
    assert found is not None
    again = parse(found.data).subgraphs[0]
    wanted = found.model.subgraphs[0]
    assert (again.operators, again.inputs, again.outputs) == (wanted.operators, wanted.inputs, wanted.outputs)


def test_every_call_is_held_against_the_file_itself(tmp_path: Path):
    """A reference in which the first value of the state is another one is found in the first call."""
    path = write_graph(tmp_path / "v.tflite", TENSORS, TOTAL, ["x"], ["y"], START)
    source = opened(path, tmp_path)
    wrong = write_graph(tmp_path / "wrong.tflite", TENSORS, TOTAL, ["x"], ["y"], {"v": const([1, -2, 5])})
    source.artifact = replace(source.artifact, path=wrong)
    runner = source.runner()
    with runner, pytest.raises(ToolError, match="'y' is another one"):
        runner.run({"x": FEEDS[0], "state.v": np.array([1, -2, 4], "f")})
