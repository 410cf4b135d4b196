"""ONNX Runtime's convolutions with what follows them, and its operators on images with channels last."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.fusion import Fusion


def fused_conv(f: Fusion) -> Sequence[ir.Value | None]:
    """``activation(Conv(x, w, b) + z)``."""
    kept = [each for name, each in f.node.attributes.items() if not name.startswith("activation")]
    bias, added = f.given(2), f.given(3)
    result = f.op("Conv", f.input(0), f.input(1), *([] if bias is None else [bias]), attributes=kept)
    if added is not None:
        result = f.op("Add", result, added)
    params = f.node.attributes.get("activation_params")
    return [activated(f, result, [] if params is None else list(params.as_floats()))]


def channels_last_conv(f: Fusion) -> Sequence[ir.Value | None]:
    """A convolution, its sum with another image, and an activation, of images with channels last."""
    images = [f.input(0), *([] if f.given(3) is None else [f.input(3)])]
    rank = f.rank(f.input(1))
    first, *added = (_turned(f, image, rank, to_front=True) for image in images)
    kept = [each for name, each in f.node.attributes.items() if not name.startswith("activation")]
    bias = f.given(2)
    result = f.op("Conv", first, f.input(1), *([] if bias is None else [bias]), attributes=kept)
    for other in added:
        result = f.op("Add", result, other)
    params = f.node.attributes.get("activation_params")
    result = activated(f, result, [] if params is None else list(params.as_floats()))
    return [_turned(f, result, rank, to_front=False)]


def channels_last_max_pool(f: Fusion) -> Sequence[ir.Value | None]:
    """Of floats or integers."""
    rank = len(f.node.attributes["kernel_shape"].as_ints()) + 2
    pooled = f.op("MaxPool", _turned(f, f.input(0), rank, to_front=True), attributes=list(f.node.attributes.values()))
    return [_turned(f, pooled, rank, to_front=False)]


def _turned(f: Fusion, x: ir.Value, rank: int, *, to_front: bool) -> ir.Value:
    """The channels of an image second instead of last, or back."""
    perm = [0, rank - 1, *range(1, rank - 1)] if to_front else [0, *range(2, rank), 1]
    return f.op("Transpose", x, attributes=[ir.AttrInt64s("perm", perm)])


def activated(f: Fusion, x: ir.Value, values: Sequence[float]) -> ir.Value:
    """``x`` behind the activation that the node names, with its parameters in the order of their names."""
    kind = f.node.attributes.get_string("activation", "")
    if kind == "":
        return x
    if kind == "Clip":
        return f.op("Clip", x, f.number(values[0]), f.number(values[1]))
    names = {"Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
    if kind not in names:
        raise Unsupported(f"activation {kind}", subject=f.title)
    attributes = [ir.AttrFloat32(name, value) for name, value in zip(names[kind], values, strict=False)]
    return f.op(kind, x, attributes=attributes)
