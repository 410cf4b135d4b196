"""What a precision became, told by the operators of what is delivered."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import GateError, UsageError
from convertkit.findings.precision import effective
from convertkit.formatting import headline
from convertkit.onnx.inspection import operators as onnx_operators
from convertkit.operators import ON_THE_FLY, Operator
from tests.command_line import here
from tests.onnx_models import mlp, model, write


def op(precision: str, macs: int = 0, kind: str = "CONV_2D") -> Operator:
    return Operator("y", kind, precision, 0, macs)


@pytest.mark.parametrize(
    ("requested", "operators", "became", "share"),
    [
        ("int8", [op("int8", 970), op("float32", 30)], "int8", 0.97),
        ("int8", [op("int8", 500), op("float32", 500)], "mixed", 0.5),
        ("int8", [op("int8 weights", 10), op("float32", 5)], "weights-only", 0.0),
        ("int8", [op(ON_THE_FLY, 10)], "weights-only", 1.0),
        ("int8", [op("float32", 5)], "float32", 0.0),
        ("int8", [op("int8"), op("float32")], "mixed", None),
        ("int16x8", [op("int16x8", 5)], "int16x8", 1.0),
        ("w8", [op("int8 weights", 5)], "w8", 0.0),
        ("w4", [op("int8 weights", 5)], "w8", 0.0),
        ("w4", [op("int8 weights", 5), op("int4 weights", 5)], "w4", 0.0),
        ("w8", [op("float32", 5)], "float32", 0.0),
        ("fp16", [op("float16 weights", 5)], "fp16", 0.0),
        ("fp16", [op("float32", 5)], "float32", 0.0),
        ("float32", [op("float32", 5)], "float32", 0.0),
        ("float32", [op("int8", 5)], "int8", 1.0),
        ("float32", [op("int8", 5), op("float32", 5)], "mixed", 0.5),
    ],
)
def test_what_a_precision_became(requested, operators, became, share) -> None:
    found = effective(requested, operators, [])
    assert (found.effective, found.integer_macs_share) == (became, share)
    assert found.held == (requested == became)


def test_the_quantizer_knows_better() -> None:
    found = effective("int8", [op("int8", 5)], [{}, {"effective": "mixed", "integer_macs_share": 0.25}])
    assert found.sentence == "int8 became mixed: 25 % of the multiply-adds in integers, the rest float32"


@pytest.fixture
def calib(tmp_path: Path) -> Path:
    np.savez(tmp_path / "calib.npz", x=np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32))
    return tmp_path / "calib.npz"


def test_float32_in_the_place_of_integers_is_the_first_thing_told(tmp_path, calib, capsys) -> None:
    """Three dense layers gain nothing from integers: what was asked for is not what is delivered."""
    source = write(tmp_path, mlp())
    result = convertkit.export(source, "onnxruntime", int8=True, calib=calib, output=tmp_path / "out")
    told = result.report["effective"]
    assert told["requested"] == "int8"
    assert told["effective"] != "int8"
    assert headline(result.report).startswith(f"onnxruntime  int8 became {told['effective']}: ")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["precision"]["effective"] == told["effective"]
    assert f"int8 became {told['effective']}" in (tmp_path / "out" / "report.html").read_text()


def test_strict_refuses_what_was_not_asked_for(tmp_path, calib) -> None:
    source = write(tmp_path, mlp())
    with pytest.raises(GateError, match=r"--strict: int8 became .*(\n.*)*try   leave --strict out"):
        convertkit.export(source, "onnxruntime", int8=True, strict=True, calib=calib, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert json.loads((tmp_path / "out.failed" / "report.json").read_text())["failure"].startswith("--strict")


def test_strict_needs_a_precision(tmp_path) -> None:
    with pytest.raises(UsageError, match="--strict goes with a precision"):
        convertkit.export(write(tmp_path, mlp()), strict=True)


def test_strict_is_kept_where_it_holds(tmp_path, calib) -> None:
    made = convertkit.export(
        write(tmp_path, mlp()), "tflite", int8=True, full_integer=True, strict=True, calib=calib, output=tmp_path / "o"
    )
    assert made.report["effective"] == {
        "requested": "int8",
        "effective": "int8",
        "integer_macs_share": 1.0,
        "for_size_only": False,
        "time_share": None,
        "sentence": "int8: 100 % of the multiply-adds in integers",
    }


def test_pruning_that_wins_nothing_says_so(tmp_path) -> None:
    made = convertkit.export(write(tmp_path, mlp()), prune=0.5, output=tmp_path / "out")
    assert [note for note in made.report["notes"] if note.startswith("--prune 0.5 made nothing smaller or faster")]
    size, deflated = made.artifact.size_bytes, len(zlib.compress(made.artifact.path.read_bytes()))
    told = f"of {size:,} bytes {deflated:,} are left where a package or a download deflates them"
    assert told in made.report["notes"]
    assert deflated < 0.8 * size


def qdq(weight_is_integer: bool, bias_is_float: bool = True) -> onnx.ModelProto:
    """``Gemm`` between integers, as TensorRT gets it; its weight may be float."""
    rng = np.random.default_rng(0)
    stored = [
        numpy_helper.from_array(np.float32(0.1), "scale"),
        numpy_helper.from_array(np.int8(0), "zero"),
        numpy_helper.from_array(rng.standard_normal(3).astype(np.float32), "bias"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
    ]
    if weight_is_integer:
        stored.append(numpy_helper.from_array(rng.integers(-9, 9, (5, 3)).astype(np.int8), "w_q"))
        nodes.append(helper.make_node("DequantizeLinear", ["w_q", "scale", "zero"], ["w"]))
    else:
        stored.append(numpy_helper.from_array(rng.standard_normal((5, 3)).astype(np.float32), "w"))
    nodes.append(helper.make_node("Gemm", ["d", "w", "bias"], ["y"]))
    return model(nodes, {"x": [2, 5]}, {"y": [2, 3]}, stored)


@pytest.mark.parametrize(("integer", "precision"), [(True, "int8"), (False, "float32")])
def test_products_of_an_onnx_file(tmp_path, integer, precision) -> None:
    (product,) = [each for each in onnx_operators(write(tmp_path, qdq(integer))) if each.kind == "Gemm"]
    assert (product.precision, product.macs) == (precision, 2 * 5 * 3)


def test_the_command_line_begins_with_it(tmp_path, calib) -> None:
    write(tmp_path, mlp())
    done = here("export", tmp_path / "model.onnx", "--int8", "--calib", calib, "--strict", "-o", tmp_path / "out")
    assert done.code == 3
    assert done.complaint.startswith("--strict: int8 became")
    done = here("export", tmp_path / "model.onnx", "--w8", "-o", tmp_path / "out")
    assert done.out.startswith("onnxruntime  w8 became float32: no operator and no weight is an integer")
