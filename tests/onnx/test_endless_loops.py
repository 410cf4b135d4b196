"""A model whose loop never ends for what it is given: told, not waited for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import convertkit
from convertkit.artifact import Artifact
from convertkit.errors import ConvertKitError, ToolError
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.specs import interface

LOOP = """<ir_version: 8, opset_import: ["": 18]> until_smaller (float a, float b) => (float y) {
    y = Loop ("", "", b) <body = again (int64 i, bool go, float x) => (bool on, float less) {
        more = Add (a, x) less = Sub (a, x) on = Greater (more, less) }> }"""
"""Ends for all but 0 < b < a, between which it goes to and fro."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("convertkit.onnx.runner._LONGEST_LOOP", 0.5)
    onnx.save(parser.parse_model(LOOP), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_source_that_does_not_end_is_told(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertKitError, match=r"did not end within 0\.5 s") as told:
        convertkit.export(model, output=tmp_path / "out")
    assert "--input" in str(told.value)
    assert not (tmp_path / "out").exists()


def test_a_call_is_stopped_and_the_next_one_answers(model: Path) -> None:
    artifact = Artifact(model, "onnx", *interface(ir.load(model)), "")
    with OnnxRunner(artifact) as runner:
        with pytest.raises(ToolError, match=r"did not end within 0\.5 s"):
            runner.run({"a": np.float32(1), "b": np.float32(0.25)})
        assert runner.run({"a": np.float32(1), "b": np.float32(-2)})["y"] == 3.0
