"""Padding of pools, stated where it is left to a rule."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, dims


def pad_to_result(node: ir.Node) -> None:
    """State what ``ceil_mode`` comes to as padding behind, with which windows fit as often as ONNX says.

    Of a pool that does not count what is padded.  Runtimes count a window that lies in the padding behind alone, too.
    Source: ONNX operators, MaxPool-22 and AveragePool-22.
    """
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    if before is None or after is None or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return
    count = len(before) - 2
    kernel = node.attributes.get_ints("kernel_shape")
    ones, zeros = (1,) * count, (0,) * 2 * count
    strides, dilations = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    pads = list(node.attributes.get_ints("pads", zeros))
    for axis, (size, result) in enumerate(zip(before[2:], after[2:], strict=True)):
        if not isinstance(size, int) or not isinstance(result, int):
            return
        reach = (result - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        pads[count + axis] = max(pads[count + axis], reach - size - pads[axis])
        if (size + pads[axis] + pads[count + axis] - reach) // strides[axis]:
            return
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    node.attributes["ceil_mode"] = ir.AttrInt64("ceil_mode", 0)


def state_same_pads(node: ir.Node) -> None:
    """The padding that ``auto_pad`` SAME_LOWER or SAME_UPPER comes to, where sizes are known."""
    before, rule = dims(node.inputs[0]), node.attributes.get_string("auto_pad", "NOTSET")
    if before is None or rule not in ("SAME_LOWER", "SAME_UPPER"):
        return
    kernel = node.attributes.get_ints("kernel_shape")
    ones = (1,) * len(kernel)
    strides, dilations = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    first, last = list[int](), list[int]()
    for axis, size in enumerate(before[2:]):
        if not isinstance(size, int):
            return
        reach = (-(-size // strides[axis]) - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = max(reach - size, 0)
        first.append(total // 2 if rule == "SAME_UPPER" else total - total // 2)
        last.append(total - first[-1])
    node.attributes["pads"] = ir.AttrInt64s("pads", [*first, *last])
    node.attributes.pop("auto_pad")


def state_average(node: ir.Node) -> None:
    """A mean whose windows ``ceil_mode`` counts, as one with padding that does not count; of dynamic sizes it stays."""
    if not node.attributes.get_int("ceil_mode", 0):
        return
    if node.attributes.get_int("count_include_pad", 0):
        state_same_pads(node)
        if not pad_in_front(node):
            return
        node.attributes.pop("count_include_pad")
    pad_to_result(node)


def pad_in_front(node: ir.Node) -> bool:
    """Zeros of a mean that counts them as an operator of their own; whether none are left for it to count."""
    x, before = node.inputs[0], dims(node.inputs[0])
    pads = node.attributes.get_ints("pads", ())
    if not any(pads):
        return node.attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    if x is None or before is None:
        return False
    place, ends = Place(node), np.zeros((2, len(before)), np.int64)
    ends[:, 2:] = np.reshape(pads, (2, -1))
    more = ends.sum(0).tolist()
    grown = [size + each if isinstance(size, int) else size for size, each in zip(before, more, strict=True)]
    node.replace_input_with(0, place.op("Pad", x, place.constant(ends.reshape(-1)), shape=grown))
    node.attributes["pads"] = ir.AttrInt64s("pads", [0] * len(pads))
    return True
