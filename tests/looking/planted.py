"""A model with a little of everything, and faults that are planted in it, each at one node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models

Fault = Callable[[onnx.ModelProto], None]


def everything() -> onnx.ModelProto:
    """Convolutions, pooling, Gelu, a norm, attention, slices, a clamp, and a state; ``x`` (1, 3, 16, 16) to ``y``."""
    draw = np.random.default_rng(5).standard_normal
    shapes = {"w1": (6, 3, 3, 3), "b1": (6,), "w2": (8, 6, 3, 3), "b2": (8,), "g": (8,), "beta": (8,), "wq": (8, 8),
              "wk": (8, 8), "wv": (8, 8), "w3": (8, 4), "b3": (4,)}  # fmt: skip
    values = {name: (0.3 * draw(shape)).astype(np.float32) for name, shape in shapes.items()}
    values |= {"g": values["g"] + 1, "big": np.float32(3e5), "small": np.float32(1 / 3e5), "scale": np.float32(0.35)}
    values |= {"low": np.float32(-0.6), "high": np.float32(0.6), "rows": np.array([1, 64, 8])}
    values |= {"zero": np.array([0]), "half": np.array([32]), "end": np.array([64]), "one": np.array([1])}
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], name="relu1"),
        node("AveragePool", ["r1"], ["a1"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a1", "w2", "b2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        node("Gelu", ["c2"], ["g2"], name="gelu"),
        node("Mul", ["g2", "big"], ["loud"], name="louder"),
        node("Mul", ["loud", "small"], ["quiet"], name="quieter"),
        node("Transpose", ["quiet"], ["t2"], name="last", perm=[0, 2, 3, 1]),
        node("Reshape", ["t2", "rows"], ["tokens"], name="flat"),
        node("LayerNormalization", ["tokens", "g", "beta"], ["ln"], name="norm", epsilon=1e-3),
        node("MatMul", ["ln", "wq"], ["q"], name="query"),
        node("MatMul", ["ln", "wk"], ["k"], name="key"),
        node("MatMul", ["ln", "wv"], ["v"], name="value"),
        node("Transpose", ["k"], ["kt"], name="turned", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["qk"], name="scores"),
        node("Mul", ["qk", "scale"], ["scaled"], name="scaling"),
        node("Softmax", ["scaled"], ["att"], name="softmax", axis=-1),
        node("MatMul", ["att", "v"], ["mixed"], name="mixing"),
        node("Add", ["mixed", "ln"], ["res"], name="residual"),
        node("Slice", ["res", "zero", "half", "one"], ["first"], name="head"),
        node("Slice", ["res", "half", "end", "one"], ["rest"], name="tail"),
        node("Tanh", ["rest"], ["bent"], name="bend"),
        node("Concat", ["first", "bent"], ["joined"], name="join", axis=1),
        node("ReduceMax", ["joined", "one"], ["mean"], name="mean", keepdims=0),
        node("Add", ["mean", "state.h"], ["summed"], name="remember"),
        node("Sigmoid", ["summed"], ["next_state.h"], name="keep"),
        node("Gemm", ["summed", "w3", "b3"], ["logits"], name="dense"),
        node("Clip", ["logits", "low", "high"], ["y"], name="clamp"),
    ]
    inputs, outputs = {"x": [1, 3, 16, 16], "state.h": [1, 8]}, {"y": [1, 4], "next_state.h": [1, 8]}
    return onnx_models.model(nodes, inputs, outputs, stored, opset=20)


def start() -> dict[str, np.ndarray]:
    """What lies beside the model: the start of its state."""
    return {"state.h": np.linspace(-0.2, 0.2, 8, dtype=np.float32).reshape(1, 8)}


def named(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.name == name)


def attribute(name: str, key: str, value: object) -> Fault:
    """Another attribute of one node."""

    def plant(model: onnx.ModelProto) -> None:
        node = named(model, name)
        kept = [each for each in node.attribute if each.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(key, value)])

    return plant


def operator(name: str, kind: str) -> Fault:
    """Another operator in the place of one."""

    def plant(model: onnx.ModelProto) -> None:
        named(model, name).op_type = kind

    return plant


def reads(name: str, *inputs: str) -> Fault:
    """A node that reads other values."""

    def plant(model: onnx.ModelProto) -> None:
        named(model, name).input[:] = inputs

    return plant


def constant(name: str, place: int, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Another constant for one node alone."""

    def plant(model: onnx.ModelProto) -> None:
        node = named(model, name)
        old = next(each for each in model.graph.initializer if each.name == node.input[place])
        changed = np.asarray(change(numpy_helper.to_array(old).copy()))
        model.graph.initializer.append(numpy_helper.from_array(changed, f"{old.name}.changed"))
        node.input[place] = f"{old.name}.changed"

    return plant


def in_half(name: str) -> Fault:
    """The result of a node kept in float16 on its way to the next."""

    def plant(model: onnx.ModelProto) -> None:
        node = named(model, name)
        result = node.output[0]
        node.output[0] = f"{result}.wide"
        at = list(model.graph.node).index(node) + 1
        narrow = helper.make_node("Cast", [f"{result}.wide"], [f"{result}.half"], name="narrow", to=TensorProto.FLOAT16)
        wide = helper.make_node("Cast", [f"{result}.half"], [result], name="wide", to=TensorProto.FLOAT)
        model.graph.node.insert(at, wide)
        model.graph.node.insert(at, narrow)

    return plant


def both(*faults: Fault) -> Fault:
    def plant(model: onnx.ModelProto) -> None:
        for each in faults:
            each(model)

    return plant


def one(place: tuple[int, ...], value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


def zeros(array: np.ndarray) -> np.ndarray:
    return np.zeros_like(array)


FAULTS: dict[str, tuple[str, Fault]] = {
    "wrong scale": ("scaling", constant("scaling", 1, lambda scale: scale * np.float32(1.1))),
    "swapped axes": ("last", attribute("last", "perm", [0, 3, 2, 1])),
    "dropped bias": ("conv2", constant("conv2", 2, zeros)),
    "dropped epsilon": ("norm", attribute("norm", "epsilon", 1e-12)),
    "another epsilon": ("norm", attribute("norm", "epsilon", 1e-5)),
    "wrong pad": ("conv1", attribute("conv1", "pads", [0, 0, 2, 2])),
    "off-by-one slice": ("tail", constant("tail", 1, lambda begin: begin - 1)),
    "float16 overflow": ("louder", in_half("louder")),
    "the other Gelu": ("gelu", attribute("gelu", "approximate", "tanh")),
    "stale state": ("remember", reads("remember", "mean", "mean")),
    "softmax along another axis": ("softmax", attribute("softmax", "axis", 1)),
    "swapped parts": ("join", reads("join", "bent", "first")),
    "a clamp beside its place": ("clamp", constant("clamp", 2, lambda high: high - np.float32(0.05))),
    "padding counted": ("pool", attribute("pool", "count_include_pad", 1)),
    "one weight lost": ("dense", constant("dense", 1, one((2, 1), 0.0))),
    "a dilation": ("conv2", both(attribute("conv2", "dilations", [2, 2]), attribute("conv2", "pads", [2, 2, 2, 2]))),
    "another reduction": ("mean", operator("mean", "ReduceMean")),
    "dropped activation": ("relu1", operator("relu1", "Identity")),
    "a transposed weight": ("query", constant("query", 1, np.transpose)),
    "a sign": ("residual", operator("residual", "Sub")),
    "another function": ("bend", operator("bend", "Softsign")),
    "a lost gamma": ("norm", constant("norm", 1, np.ones_like)),
    "keys for queries": ("scores", reads("scores", "k", "kt")),
}
"""By what is wrong: the node that is wrong, and what makes it so."""
