"""Small float models with weights that are not trained and data that is not noise alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from convertkit.artifact import Array, Artifact
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model


def model_of(
    nodes: list[onnx.NodeProto],
    constants: dict[str, Array],
    inputs: dict[str, list[int | str]],
    outputs: Mapping[str, list[int | str] | None],
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def artifact_of(proto: onnx.ModelProto, folder: Path) -> Artifact:
    return save_model(canonicalize(ir.from_proto(proto)), folder / "float.onnx", "test")


def small_cnn(seed: int = 0, classes: int = 5) -> onnx.ModelProto:
    """Conv, Relu, depthwise, MaxPool, residual Add, mean, Gemm: 12 × 12 images, 3 channels."""
    rng = np.random.default_rng(seed)
    c = {
        "w1": rng.normal(0, 0.3, (16, 3, 3, 3)),
        "b1": rng.normal(0, 0.2, 16),
        "w2": rng.normal(0, 0.5, (16, 1, 3, 3)),
        "b2": rng.normal(0, 0.2, 16),
        "w3": rng.normal(0, 0.3, (16, 16, 1, 1)),
        "b3": rng.normal(0, 0.2, 16),
        "w4": rng.normal(0, 0.4, (classes, 16)),
        "b4": rng.normal(0, 0.2, classes),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], "depthwise", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], "pointwise"),
        helper.make_node("Add", ["c3", "p1"], ["s"], "residual"),
        helper.make_node("GlobalAveragePool", ["s"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], "head", transB=1),
    ]
    constants = {name: value.astype(np.float32) for name, value in c.items()}
    return model_of(nodes, constants, {"x": ["N", 3, 12, 12]}, {"y": ["N", classes]})


def images(count: int, seed: int = 1) -> Array:
    """Smooth blobs with noise: neighbouring pixels agree, as in photographs."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (count, 3, 4, 4)).repeat(3, 2).repeat(3, 3)
    return (coarse + rng.normal(0, 0.2, coarse.shape)).astype(np.float32)


def detector(seed: int = 0, sharpness: float = 1.2) -> onnx.ModelProto:
    """Boxes in pixels beside scores of a sigmoid through one Concat: the head that breaks naive int8.

    ``sharpness``: how far scores are from 1/2; the default saturates many.
    """
    rng = np.random.default_rng(seed)
    c = {
        "w1": rng.normal(0, 0.3, (24, 3, 3, 3)),
        "b1": rng.normal(0, 0.2, 24),
        "wb": rng.normal(0, 80, (4, 24, 1, 1)),
        "bb": rng.normal(0, 100, 4),
        "ws": rng.normal(0, sharpness, (6, 24, 1, 1)),
        "bs": rng.normal(0, 0.3, 6),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "stem", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], "stem_relu"),
        helper.make_node("Conv", ["r1", "wb", "bb"], ["boxes"], "boxes"),
        helper.make_node("Conv", ["r1", "ws", "bs"], ["logits"], "scores"),
        helper.make_node("Sigmoid", ["logits"], ["scores"], "sigmoid"),
        helper.make_node("Concat", ["boxes", "scores"], ["y"], "join", axis=1),
    ]
    constants = {name: value.astype(np.float32) for name, value in c.items()}
    return model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 10, 6, 6]})


def gain_invariant_classifier(classes: int = 214, seed: int = 0) -> onnx.ModelProto:
    """Features of any loudness, a hidden layer, a norm that removes the loudness, scores, softmax; fitted, not random.

    Integers of one scale for all samples lose the quiet ones in front of the norm.
    """
    rng = np.random.default_rng(seed)
    w1 = rng.normal(0, 1 / 8, (64, 256))
    data, labels = loud_and_quiet(8 * classes, classes, seed)
    hidden = np.maximum(data @ w1, 0)
    hidden /= np.sqrt(np.square(hidden).mean(-1, keepdims=True) + 1e-12)
    wanted = np.eye(classes)[labels] - 1 / classes
    w2 = np.linalg.solve(hidden.T @ hidden + 1.0 * np.eye(256), hidden.T @ wanted) * 12
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "hidden"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Mul", ["r", "r"], ["rr"], "square"),
        helper.make_node("ReduceMean", ["rr", "axis"], ["m"], "mean", keepdims=1),
        helper.make_node("Add", ["m", "tiny"], ["e"], "epsilon"),
        helper.make_node("Sqrt", ["e"], ["s"], "root"),
        helper.make_node("Div", ["r", "s"], ["n"], "norm"),
        helper.make_node("MatMul", ["n", "w2"], ["z"], "scores"),
        helper.make_node("Softmax", ["z"], ["y"], "softmax", axis=-1),
    ]
    floats = {"w1": w1, "w2": w2, "tiny": np.array(1e-12)}
    constants: dict[str, Array] = {name: value.astype(np.float32) for name, value in floats.items()}
    return model_of(nodes, {**constants, "axis": np.array([-1], np.int64)}, {"x": ["N", 64]}, {"y": ["N", classes]})


def loud_and_quiet(count: int, classes: int = 214, seed: int = 0, decades: float = 3.0) -> tuple[Array, Array]:
    """Samples of :func:`gain_invariant_classifier` and their classes; ``seed`` 0 is what it was fitted on."""
    kinds = np.random.default_rng(1000).normal(0, 1, (classes, 64))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    gain = 10 ** rng.uniform(0.5 - decades, 0.5, (count, 1))
    return ((kinds[labels] + rng.normal(0, 0.3, (count, 64))) * gain).astype(np.float32), labels


def linear_classifier(classes: int = 20) -> onnx.ModelProto:
    """Two layers without an activation: scores grow with the sample."""
    rng = np.random.default_rng(11)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "hidden"),
        helper.make_node("MatMul", ["h", "w2"], ["y"], "scores"),
    ]
    constants: dict[str, Array] = {
        "w1": rng.normal(0, 0.125, (64, 256)).astype(np.float32),
        "w2": rng.normal(0, 0.06, (256, classes)).astype(np.float32),
    }
    return model_of(nodes, constants, {"x": ["N", 64]}, {"y": ["N", classes]})


def few_loud(count: int, seed: int) -> Array:
    """Samples of :func:`linear_classifier`; every seventh is forty times louder."""
    data = np.random.default_rng(seed).normal(0, 0.025, (count, 64))
    data[::7] *= 40
    return data.astype(np.float32)


def autoencoder() -> onnx.ModelProto:
    """Principal components as two layers, 96 → 6 → 96, and a wide layer that does nothing but lose digits at 4 bits."""
    data, _ = machine_sounds(2000, 0)
    mean = data.mean(0)
    _, _, rows = np.linalg.svd(data - mean, full_matrices=False)
    kept = rows[:6].T
    rng = np.random.default_rng(5)
    turned = np.linalg.qr(rng.normal(0, 1, (96, 96)))[0]
    constants = {"w0": turned, "w1": turned.T @ kept, "w2": kept.T, "b1": -mean @ kept, "b2": mean}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["t"], "turn"),
        helper.make_node("MatMul", ["t", "w1"], ["e"], "encode"),
        helper.make_node("Add", ["e", "b1"], ["c"], "code"),
        helper.make_node("MatMul", ["c", "w2"], ["d"], "decode"),
        helper.make_node("Add", ["d", "b2"], ["y"], "mean"),
    ]
    floats = {name: value.astype(np.float32) for name, value in constants.items()}
    return model_of(nodes, floats, {"x": ["N", 96]}, {"y": ["N", 96]})


def machine_sounds(count: int, seed: int) -> tuple[Array, Array]:
    """Samples of :func:`autoencoder` and whether each is an anomaly: every second one but for ``seed`` 0 and 1."""
    shapes = np.random.default_rng(99).normal(0, 1, (6, 96)) * np.array([[1.0], [0.8], [0.6], [0.5], [0.4], [0.3]])
    rng = np.random.default_rng(seed)
    strange = (np.arange(count) % 2 == 1) & (seed > 1)
    data = 0.3 + rng.normal(0, 1, (count, 6)) @ shapes + rng.normal(0, 0.1, (count, 96))
    bumps = np.exp(-0.5 * ((np.arange(96) - rng.uniform(10, 86, (count, 1))) / 1.5) ** 2)
    return (data + 0.36 * bumps * strange[:, None]).astype(np.float32), strange
