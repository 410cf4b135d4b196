"""ONNX's reference evaluator, of which every failure is one of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from convertkit.errors import ToolError
from convertkit.onnx.evaluator import Evaluator


def test_what_it_takes_for_granted_is_a_refusal(tmp_path: Path) -> None:
    """A scale for blocks of a model that names no size of blocks: the operator asserts that it has one axis."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4,4] x, float[2,4] s, int8[2,4] z) => (int8[4,4] y)'
        " { y = QuantizeLinear <axis = 0> (x, s, z) }"
    )
    path = tmp_path / "blocks.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    evaluator = Evaluator.of(path)
    assert evaluator is not None
    feed = {"x": np.ones((4, 4), np.float32), "s": np.ones((2, 4), np.float32), "z": np.zeros((2, 4), np.int8)}
    with pytest.raises(ToolError, match=r"reference evaluator fails on blocks\.onnx"):
        evaluator.run(["y"], feed)
