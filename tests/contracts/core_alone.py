"""Carry a small ONNX model through an installed convertkit without any extra: `python -P core_alone.py FOLDER`.

A script, not a test: CI runs it on every Python it finds, with nothing but the wheel installed.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def mlp() -> onnx.ModelProto:
    """Two dense layers with a ReLU; input x (N, 5), output y (N, 3)."""
    draw = np.random.default_rng(1).standard_normal
    weights = {"w1": (5, 7), "b1": (7,), "w2": (7, 3), "b2": (3,)}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(draw(shape).astype(np.float32), name) for name, shape in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def main() -> None:
    """Export, and say what was proven."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(mlp(), folder / "mlp.onnx")
    tool = Path(sysconfig.get_path("scripts")) / "convertkit"
    command = [str(tool), "export", str(folder / "mlp.onnx"), "--target", "onnxruntime", "-o", str(folder / "out")]
    subprocess.run(command, check=True)
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["passed"], report
    print(f"python {sys.version.split()[0]}: mlp.onnx exported and proven by the core alone")


if __name__ == "__main__":
    main()
