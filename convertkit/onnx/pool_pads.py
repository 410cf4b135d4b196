"""Pads of pools that no window reaches, which ONNX Runtime refuses where they are as large as the kernel.

PyTorch's exporter of opset 9 writes ``ceil_mode`` as larger pads behind the values, some larger than what the windows
take in.
"""

from __future__ import annotations

import onnx_ir as ir

POOLS = frozenset({"AveragePool", "MaxPool", "LpPool"})
"""Operators with windows, pads and ``ceil_mode``."""


def trim_pads(model: ir.Model) -> None:
    """Make pads behind the values no larger than the last window asks for, in place, where sizes are known.

    Source of the sizes: ONNX operators, AveragePool-11, ``floor((in + begin + end - extent) / stride) + 1``.
    """
    for node in model.graph.all_nodes():
        if node.domain or node.op_type not in POOLS or node.inputs[0] is None:
            continue
        pads, shape = list(node.attributes.get_ints("pads", ())), node.inputs[0].shape
        rounds_up = node.attributes.get_int("ceil_mode", 0)
        if not any(pads) or shape is None or rounds_up:
            continue
        kernel = node.attributes.get_ints("kernel_shape", ())
        rank, sizes = len(kernel), list(shape)[-len(kernel) :]
        steps = node.attributes.get_ints("strides", [1] * rank)
        apart = node.attributes.get_ints("dilations", [1] * rank)
        for axis, size in enumerate(sizes):
            if isinstance(size, int) and pads[rank + axis] >= kernel[axis]:
                extent = (kernel[axis] - 1) * apart[axis] + 1
                spare = (size + pads[axis] + pads[rank + axis] - extent) % steps[axis]
                pads[rank + axis] -= min(spare, pads[rank + axis])
        node.attributes.add(ir.AttrInt64s("pads", pads))
