"""A small network with its data, exported to TensorFlow Lite Micro, and what compiles a package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLES = np.random.default_rng(1).normal(0, 1, (24, 3, 8, 8)).astype(np.float32)


def network(seed: int = 0) -> onnx.ModelProto:
    """Conv, Relu, a residual Add, pooling, Gemm, Softmax, with an open batch."""
    rng = np.random.default_rng(seed)
    stored = {
        "w1": rng.normal(0, 0.3, (8, 3, 3, 3)), "b1": rng.normal(0, 0.2, 8), "w2": rng.normal(0, 0.3, (8, 8, 1, 1)),
        "w3": rng.normal(0, 0.3, (6, 8)), "b3": rng.normal(0, 0.2, 6),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "pointwise"),
        helper.make_node("Add", ["c2", "r1"], ["s"], "residual"),
        helper.make_node("MaxPool", ["s"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["h"], "head", transB=1),
        helper.make_node("Softmax", ["h"], ["y"], "softmax"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def one_node(kind: str, shape: list[object], out: list[object], **attributes: object) -> onnx.ModelProto:
    """A model of one node on floats."""
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], "node", **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def saved(made: onnx.ModelProto, path: Path) -> Path:
    """The model in a file."""
    onnx.save(made, path)
    return path


def built(package: Path, stubs: Path, out: Path) -> Path:
    """The package's test as a program, compiled against stubs with all warnings as errors."""
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{stubs}", f"-I{package}"]
    files = [str(package / name) for name in ("main.cc", "model.cc", "golden.cc")]
    subprocess.run(["g++", *flags, *files, str(stubs / "stub.cc"), "-o", str(out)], check=True)
    return out
