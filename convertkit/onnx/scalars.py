"""Constants of one element where ONNX asks for a scalar, as ONNX Runtime takes them: ``[1]`` becomes ``[]``.

before:  Clip(x, float[1] {0}, float[1] {6})
after:   Clip(x, float {0}, float {6})
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer

_SCALARS: Mapping[str, tuple[int, ...]] = {
    "Clip": (1, 2),
    "CumSum": (1,),
    "Pad": (2,),
    "Trilu": (1,),
}
"""Which operands these are."""


def make_scalars(model: ir.Model) -> None:
    """Rewrite them, in place; a constant that others read stays for these."""
    for node in [node for node in model.graph.all_nodes() if node.op_type in _SCALARS and not node.domain]:
        for place in _SCALARS[node.op_type]:
            value = node.inputs[place] if place < len(node.inputs) else None
            known = None if value is None or value.is_graph_input() else array_of(value)
            if value is not None and known is not None and known.ndim and known.size == 1:
                node.replace_input_with(place, initializer(node, known.reshape(()), f"{value.name}/scalar"))
