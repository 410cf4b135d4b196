"""Pools that round up, where ONNX's rules of shapes count a window that begins behind the values.

Runtimes and PyTorch leave that window out (ONNX operators, AveragePool-19: "sliding windows that would start in the
right padded region are ignored"), so that sizes told by the rules are one too large, and all that follow from them.
Without ``ceil_mode`` the rules are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import initializer, inserted
from convertkit.onnx.pool_pads import POOLS


@dataclass(frozen=True, slots=True)
class _Axis:
    """A window's way along one axis: ``left`` elements are beyond the last step that is a whole one."""

    size: int
    kernel: int
    extent: int
    stride: int
    before: int
    after: int

    @property
    def left(self) -> int:
        return (self.size + self.before + self.after - self.extent) % self.stride

    @property
    def count(self) -> int:
        """Windows, with the one that begins where whole steps end, unless that is behind the values."""
        steps = (self.size + self.before + self.after - self.extent) // self.stride
        return steps + 1 + (self.left > 0 and (steps + 1) * self.stride < self.size + self.before)

    @property
    def ends_early(self) -> bool:
        """Whether a window begins behind the values, which the rules count."""
        return self.left > 0 and self.count == (self.size + self.before + self.after - self.extent) // self.stride + 1

    @property
    def padded(self) -> int:
        """Padding at the end with which whole steps make as many windows."""
        return self.after if self.ends_early or not self.left else self.after + self.stride - self.left


def round_down(model: ir.Model) -> bool:
    """Write the first pool that the rules get wrong without ``ceil_mode``, in place; whether there was one.

    Sizes that follow from its result are forgotten.  Where another axis needs a window that is not whole, it gets more
    padding at its end; an average that counts padding gets the padding of the file in front of it and counts no more.
    """
    for node in model.graph.all_nodes():
        axes = _axes(node)
        if axes is None or not any(axis.ends_early for axis in axes):
            continue
        ends = [axis.padded for axis in axes]
        grown = any(end != axis.after for end, axis in zip(ends, axes, strict=True))
        if grown and not _fit(ends, axes):
            continue
        for name in ("ceil_mode", "auto_pad"):
            node.attributes.pop(name, None)
        befores = [axis.before for axis in axes]
        if grown and node.attributes.get_int("count_include_pad", 0) == 1:
            ends = [end - axis.after for end, axis in zip(ends, axes, strict=True)]
            _pad_first(node, axes)
            befores = [0] * len(axes)
        node.attributes.add(ir.AttrInt64s("pads", [*befores, *ends]))
        _settle(node, [axis.count for axis in axes])
        return True
    return False


def _pad_first(node: ir.Node, axes: Sequence[_Axis]) -> None:
    """Padding that counts becomes zeros in front of an average that counts none."""
    x = node.inputs[0]
    assert x is not None
    assert x.shape is not None
    pads = np.array([0, 0, *(axis.before for axis in axes), 0, 0, *(axis.after for axis in axes)], np.int64)
    shape = ir.Shape([*list(x.shape)[:2], *(axis.before + axis.size + axis.after for axis in axes)])
    padded = inserted(node, "Pad", [x, initializer(node, pads, f"{node.name}/pads")], x, shape=shape)
    node.replace_input_with(0, padded.outputs[0])
    node.attributes.pop("count_include_pad")


def _fit(ends: Sequence[int], axes: Sequence[_Axis]) -> bool:
    """ONNX Runtime takes padding below the kernel's size alone."""
    return all(end < axis.kernel for end, axis in zip(ends, axes, strict=True))


def _axes(node: ir.Node) -> list[_Axis] | None:
    """The spatial axes of a pool that rounds up; None of anything else, and of sizes that are not known."""
    if node.domain or node.op_type not in POOLS or not node.attributes.get_int("ceil_mode", 0):
        return None
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    kernel = node.attributes.get_ints("kernel_shape", ())
    rank = len(kernel)
    sizes = [size for size in list(shape or ())[2:] if isinstance(size, int)]
    if mode not in ("NOTSET", "VALID") or len(sizes) != rank:
        return None
    pads = node.attributes.get_ints("pads", ()) if mode == "NOTSET" else ()
    pads = pads or [0] * (2 * rank)
    steps = node.attributes.get_ints("strides", ()) or [1] * rank
    apart = node.attributes.get_ints("dilations", ()) or [1] * rank
    return [
        _Axis(sizes[at], kernel[at], (kernel[at] - 1) * apart[at] + 1, steps[at], pads[at], pads[rank + at])
        for at in range(rank)
    ]


def _settle(node: ir.Node, counts: Sequence[int]) -> None:
    """Give the pool's results their sizes, and forget those of what is computed from them."""
    following = list(node.outputs)
    for value in node.outputs:
        if value.shape is not None:
            value.shape = ir.Shape([*list(value.shape)[:2], *counts])
    seen = set(following)
    while following:
        for use in following.pop().uses():
            new = [value for value in use.node.outputs if value not in seen]
            seen.update(new)
            following.extend(new)
            for value in new:
                if not value.is_graph_output():
                    value.shape = None
