"""``--onnxruntime-ir-version``: in the file's head, verified like any other, refused where the opset is too new."""

from __future__ import annotations

import onnx
import pytest

import convertkit
from convertkit.errors import Unsupported
from tests import onnx_models


@pytest.fixture
def network(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


@pytest.mark.parametrize(("ir_version", "opset"), [(9, None), (13, None), (8, 17), (7, 14)])
def test_the_file_says_so(tmp_path, network, ir_version, opset) -> None:
    asked = {"onnxruntime": {"ir_version": ir_version}}
    made = convertkit.export(network, opset=opset, target_options=asked, output=tmp_path / "out")
    assert onnx.load(made.artifact.path).ir_version == ir_version
    usual = convertkit.export(network, opset=opset, output=tmp_path / "usual")
    assert onnx.load(usual.artifact.path).ir_version != ir_version
    assert made.passed


def test_an_opset_that_is_newer_than_the_format_is_refused(tmp_path, network) -> None:
    with pytest.raises(Unsupported) as caught:
        convertkit.export(network, target_options={"onnxruntime": {"ir-version": 7}}, output=tmp_path / "out")
    assert "opset 18 needs version 8 of the file format or a newer one, not 7" in str(caught.value)
    assert "try   --opset 14" in str(caught.value)
    assert "try   --onnxruntime-ir-version 8" in str(caught.value)
    assert not (tmp_path / "out").exists()
    asked = {"onnxruntime": {"ir-version": 7}}
    assert convertkit.export(network, opset=14, target_options=asked, output=tmp_path / "out").passed
