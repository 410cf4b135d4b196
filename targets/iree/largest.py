"""TopK beside others of one size: each over a number of elements of its own.

IREE 3.13 makes one buffer of the places that equal ones count from, and writes into it in place: what the second
finds are the first one's places.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, dims

_Key = tuple[tuple[str, ...], str, int]


def write_own_places(model: ir.Model) -> None:
    """All of them, in place.

    before:  y, i = TopK (x[N,8], 2)
    after:   y, i = TopK (Pad (x, [0, 0, 0, 1], -inf), 2)

    What is added lies behind the elements, and of equal ones the first are taken.
    """
    taken = set[_Key]()
    for node in tuple(model.graph.all_nodes()):
        sizes = dims(node.inputs[0]) if node.op_type == "TopK" and not node.domain else None
        if sizes:
            _widen(node, sizes, taken)


def _widen(node: ir.Node, sizes: tuple[int | ir.SymbolicDim, ...], taken: set[_Key]) -> None:
    place, x = Place(node), node.inputs[0]
    assert x is not None
    assert x.dtype is not None
    axis = node.attributes.get_int("axis", -1) % len(sizes)
    size = sizes[axis]
    others = tuple(sorted(str(each) for at, each in enumerate(sizes) if at != axis))
    known, name = (size, "") if isinstance(size, int) else (0, str(size))
    more = 0
    while (others, name, known + more) in taken:
        more += 1
    taken.add((others, name, known + more))
    if more:
        wider = [*sizes[:axis], size + more if isinstance(size, int) else ir.SymbolicDim(None), *sizes[axis + 1 :]]
        pads = np.zeros((2, len(sizes)), np.int64)
        pads[1, axis] = more
        worst = place.constant(_worst(x.dtype.numpy(), largest=bool(node.attributes.get_int("largest", 1))))
        node.replace_input_with(0, place.op("Pad", x, place.constant(pads.reshape(-1)), worst, shape=wider))


def _worst(dtype: np.dtype, *, largest: bool) -> np.ndarray:
    """What comes last of all."""
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return np.array(ends.min if largest else ends.max, dtype)
    return np.array(-np.inf if largest else np.inf, dtype)
