"""What a failed verification on generated inputs advises."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.errors import ParityError
from convertkit.steps.session import hinted
from convertkit.text import NOT_VERIFIED

NOT_A_NUMBER = 'verification failed after tflite: output "y" is not NaN or infinite where the reference is, on input 1'
APART = 'verification failed after tflite: output "y" max_abs 0.31, relative 2.00e-02 on input 1'


@pytest.mark.parametrize(
    ("said", "way"),
    [(NOT_A_NUMBER, "--input 'NAME::DTYPE[LOW,HIGH)' with the range of real inputs"), (APART, "--calib")],
)
def test_the_way_out_fits_the_fault(said: str, way: str) -> None:
    text = str(hinted(ParityError(said)))
    assert text.startswith(f"{said}\n  try   {way}")


def test_no_data_is_advised_where_the_model_draws() -> None:
    notes = ("a note", f"{NOT_VERIFIED}: node (Dropout): it draws random numbers")
    text = str(hinted(ParityError(APART), notes))
    assert text.startswith(f"{APART}\n  try   the random tensor as an input of the model")
    assert "--calib" not in text


def test_advice_is_given_once() -> None:
    failed = ParityError(f"{APART}\n  try   --calib with samples")
    assert hinted(failed) is failed


def test_an_export_knows_that_its_model_draws(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(ParityError, match="\n  try   the random tensor as an input of the model"):
        convertkit.export(tmp_path / "m.onnx", "openvino", output=tmp_path / "out", allow_unverified=True)
