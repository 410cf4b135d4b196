"""What the step declares about the numbers of its artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.artifact import Artifact, TensorSpec
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32
from convertkit.targets.tflite.stage import CompileTflite


def rounded(kind: type[np.generic] | None, zero: int, path: Path) -> Artifact:
    """A sine of numbers that are rounded to integers of ``kind`` first."""
    nodes, stored = [helper.make_node("Sin", ["r" if kind else "x"], ["y"])], []
    if kind is not None:
        stored = [numpy_helper.from_array(np.float32(1e-3), "s"), numpy_helper.from_array(np.array(zero, kind), "z")]
        nodes.insert(0, helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]))
        nodes.insert(0, helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]))
    ends = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    specs = [(TensorSpec(name, (2, 3), "float32"),) for name in ("x", "y")]
    return Artifact(path, "onnx", specs[0], specs[1], "")


@pytest.mark.parametrize(("kind", "zero"), [(np.int8, 3), (np.int16, 0), (np.int16, 40), (np.uint16, 900)])
def test_numbers_that_are_rounded_to_integers_agree_within_rounding(kind, zero: int, tmp_path: Path) -> None:
    """Also where no kernel takes the integers, and float ones round like the graph: a tie falls either way."""
    stage = CompileTflite(ExportOptions("model.onnx", ("tflite",)))
    stage.run(rounded(kind, zero, tmp_path / "model.onnx"), tmp_path)
    assert stage.tolerance.lsb is not None
    assert stage.tolerance.relative is None


def test_numbers_that_are_not_rounded_are_the_same(tmp_path: Path) -> None:
    stage = CompileTflite(ExportOptions("model.onnx", ("tflite",)))
    stage.run(rounded(None, 0, tmp_path / "model.onnx"), tmp_path)
    assert stage.tolerance == FLOAT32
