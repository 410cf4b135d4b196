"""A pointwise convolution in front of the Resize that enlarges what it reads: as much of the sizes, fewer elements.

before:   x → Resize(×2) → Conv(1×1) → y
after:    x → Conv(1×1) → Resize(×2) → y

Nearest and linear interpolation take shares of elements that add up to 1, of each channel alone, so that products over
channels and their bias may stand before or behind it.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, array_of, only_user, sizes
from convertkit.quantization.graph.units import is_constant, is_float

_SHARES = frozenset({"nearest", "linear"})
_CLAMPS = frozenset({"Relu", "Clip"})
"""A kernel takes these with the convolution in front of them, not with a Resize."""
_SCALES, _SIZES = 2, 3


def convolve_before_enlarging(model: ir.Model) -> None:
    """Swap every such pair in place, where the convolution has no more outputs than inputs."""
    for node in tuple(model.graph):
        conv = only_user(node.outputs[0]) if node.op_type == "Resize" and not node.domain else None
        if conv is not None and conv.graph is node.graph and _enlarges(node) and _is_pointwise(conv, node):
            _swap(node, conv)


def _enlarges(resize: ir.Node) -> bool:
    """Whether only places behind batch and channels grow, by shares of elements that lie inside."""
    before, after = sizes(resize.inputs[0]), sizes(resize.outputs[0])
    if before is None or after is None or None in before[1:] or None in after[1:] or before[1] != after[1]:
        return False
    outside = resize.attributes.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    known = resize.attributes.get_string("mode", "nearest") in _SHARES and "axes" not in resize.attributes
    pairs = [(small, large) for small, large in zip(before[2:], after[2:], strict=True) if small and large]
    grows = all(large >= small for small, large in pairs) and any(large > small for small, large in pairs)
    return grows and known and not outside and _has_plain_target(resize)


def _has_plain_target(resize: ir.Node) -> bool:
    """Whether constants say the sizes or the scales, one for each axis."""
    given = [value for value in resize.inputs[_SCALES:] if value is not None and value.name]
    policy = resize.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    return len(given) == 1 and is_constant(given[0]) and policy == "stretch"


def _is_pointwise(conv: ir.Node, resize: ir.Node) -> bool:
    """Whether the convolution is over channels alone, of constants, with no more of them behind it, and not clamped."""
    fixed = [value for value in conv.inputs[1:] if value is not None]
    if conv.op_type != "Conv" or conv.domain or conv.inputs[0] is not resize.outputs[0] or not fixed:
        return False
    if not all(is_constant(value) and is_float(value) for value in fixed):
        return False
    weight = array_of(fixed[0])
    assert weight is not None
    plain = all(number == 1 for name in ("strides", "group") for number in _numbers(conv, name))
    inside = not any(_numbers(conv, "pads")) and conv.attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    reader = only_user(conv.outputs[0])
    free = reader is None or reader.op_type not in _CLAMPS
    return plain and inside and free and math.prod(weight.shape[2:]) == 1 and weight.shape[0] <= weight.shape[1]


def _numbers(node: ir.Node, name: str) -> tuple[int, ...]:
    found = node.attributes.get(name)
    if found is None:
        return ()
    return (found.as_int(),) if found.type == ir.AttributeType.INT else tuple(found.as_ints())


def _swap(resize: ir.Node, conv: ir.Node) -> None:
    """The convolution in front, the Resize behind with the name and shape of what the pair made."""
    source, large, result = resize.inputs[0], resize.outputs[0], conv.outputs[0]
    graph = resize.graph
    assert isinstance(graph, ir.Graph)
    assert source is not None
    assert source.shape is not None
    assert result.shape is not None
    name, shape = result.name, result.shape
    result.replace_all_uses_with(large, replace_graph_outputs=True)
    conv.replace_input_with(0, source)
    resize.replace_input_with(0, result)
    result.name, result.shape = f"{name}/small", ir.Shape([source.shape[0], shape[1], *source.shape[2:]])
    large.name, large.shape = name, shape
    graph.remove(conv)
    graph.insert_before(resize, conv)
    _say_channels(resize, graph)


def _say_channels(resize: ir.Node, graph: ir.Graph) -> None:
    """Those behind the convolution, where the Resize names sizes."""
    wanted = array_of(resize.inputs[_SIZES]) if len(resize.inputs) > _SIZES else None
    made = sizes(resize.outputs[0])
    if wanted is not None and made is not None:
        changed = np.array([wanted[0], made[1], *wanted[2:]], np.int64)
        resize.replace_input_with(_SIZES, add_constant(graph, f"{resize.outputs[0].name}/sizes", changed))
