"""Dynamic sizes whose names nobody gave: ONNX's inference and tf2onnx number what they cannot derive, ``unk__17``.

before:  x [batch, time, 8] → y [unk__17, unk__18, 4]
after:   x [batch, time, 8] → y [batch, time, 4]
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

INVENTED = "unk__"
"""How such names begin."""


def forget_invented_sizes(model: ir.Model, own: Collection[str]) -> None:
    """Unname them in place, so that inference tells them by those of the inputs, ``own``, where it can."""
    values = (value for node in model.graph.all_nodes() for value in node.outputs)
    for value in (*model.graph.outputs, *values):
        sizes = _sizes(value)
        if any(_is_invented(size, own) for size in sizes):
            value.shape = ir.Shape([None if _is_invented(size, own) else size for size in sizes])


def name_invented_sizes(model: ir.Model, own: Collection[str]) -> None:
    """Call those that are left after the first output that has each, in place: ``<output>_<axis>``."""
    names = dict[int | str | None, str]()
    for value in model.graph.outputs:
        sizes = _sizes(value)
        for axis, size in enumerate(sizes):
            if _is_invented(size, own):
                sizes[axis] = names.setdefault(size, f"{value.name}_{axis}")
        if names and sizes:
            value.shape = ir.Shape(sizes)


def _sizes(value: ir.Value) -> list[int | str | None]:
    """Sizes and names, None where there is neither; nothing where the rank is not known."""
    return [dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape or ()]


def _is_invented(size: int | str | None, own: Collection[str]) -> bool:
    return isinstance(size, str) and size.startswith(INVENTED) and size not in own
