"""Windows that IREE 3.13 does not compile, or whose means it divides by other numbers.

Where one window fits along an axis, it takes the strides for steps through what no window reads ("slice along dimension
1 runs out-of-bounds").  With ``ceil_mode`` it counts what that adds, and of a dynamic batch what nothing was added to.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.pool_pads import state_average, state_same_pads
from convertkit.targets.forms.writing import Place, dims


def write_average(node: ir.Node) -> None:
    """A mean whose windows ``ceil_mode`` counts, as one with padding that does not count; of dynamic sizes it stays."""
    state_average(node)
    write_single_window(node)


def write_single_window(node: ir.Node) -> None:
    """A convolution or a pool, in place; one of dynamic sizes stays, and one that tells places in its whole input.

    before:  y[N,8,1] = Conv (x[N,4,4], kernel 3, strides 2, pads 1 and 1)
    after:   y[N,8,1] = Conv (x[:, :, :2], kernel 3, strides 2, pads 1 and 0)
    """
    if any(each.uses() or each.is_graph_output() for each in node.outputs[1:]):
        return
    state_same_pads(node)
    x, before, after, extents = node.inputs[0], dims(node.inputs[0]), dims(node.outputs[0]), _extents(node)
    if x is None or before is None or after is None or extents is None:
        return
    count, sizes = len(extents), list(before)
    strides = node.attributes.get_ints("strides", (1,) * count)
    pads = list(node.attributes.get_ints("pads", (0,) * 2 * count))
    for axis, extent in enumerate(extents):
        size, read = before[2 + axis], extent - pads[axis]
        if isinstance(size, int) and after[2 + axis] == 1 and strides[axis] > 1 and read > 0:
            sizes[2 + axis] = min(size, read)
            pads[count + axis] = min(pads[count + axis], max(read - size, 0))
    if any(pads):
        node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    cut = [axis for axis, size in enumerate(sizes) if size != before[axis]]
    if cut:
        place = Place(node)
        told = [place.constant(np.array(each)) for each in ([0] * len(cut), [sizes[axis] for axis in cut], cut)]
        node.replace_input_with(0, place.op("Slice", x, *told, shape=sizes))


def _extents(node: ir.Node) -> list[int] | None:
    """Elements that a window reaches over along each axis; None where these or the padding are not known."""
    weights = dims(node.inputs[1]) if node.op_type == "Conv" else None
    kernel = node.attributes.get_ints("kernel_shape", ()) if weights is None else weights[2:]
    if not kernel or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    dilations = node.attributes.get_ints("dilations", (1,) * len(kernel))
    found = [(size - 1) * each + 1 for size, each in zip(kernel, dilations, strict=True) if isinstance(size, int)]
    return found if len(found) == len(kernel) else None
