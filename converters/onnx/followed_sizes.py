"""Numbers that a file declares of sizes which follow from an input's dynamic size.

before:  x [N, 3] → Relu → y [1, 3]
after:   x [N, 3] → Relu → y [N, 3]

Such a file is left when the inputs of a model with a fixed batch are made dynamic and the rest stays as it was.
ONNX Runtime runs it with any batch and says so on its log alone.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.canonical import free_dims


def follow_free_sizes(model: ir.Model) -> frozenset[str]:
    """Give such a size the name of the input's, in place, where ONNX's rules tell that it is the same.

    Everything else stays as declared: what the rules do not tell, and where they tell another number.  The result names
    the outputs of which sizes are declared that the rules do not tell.
    """
    own = free_dims(model)
    if not own:
        return frozenset()
    values = {value for node in model.graph for value in node.outputs} | set(model.graph.outputs)
    declared = {value: value.shape for value in values if value.shape is not None and value.producer() is not None}
    for value in declared:
        value.shape = None
    common.ShapeInferencePass(check_type=False, strict_mode=False)(model)
    outputs = {value: declared[value] for value in model.graph.outputs if value in declared}
    untold = frozenset(str(value.name) for value, shape in outputs.items() if _is_untold(shape, value.shape, own))
    for value, shape in declared.items():
        value.shape = _followed(shape, value.shape, own)
    return untold


def _followed(declared: ir.Shape, found: ir.Shape | None, own: Collection[str]) -> ir.Shape:
    """The declared sizes, but for numbers and other inputs' names where the rules tell the name of an input's size."""
    if found is None or len(found) != len(declared):
        return declared
    pairs = zip(declared, found, strict=True)
    return ir.Shape([told if _name(told) in own and _is_said(size, own) else size for size, told in pairs])


def _is_untold(declared: ir.Shape, found: ir.Shape | None, own: Collection[str]) -> bool:
    if found is None or len(found) != len(declared):
        return True
    pairs = zip(declared, found, strict=True)
    return any(_is_said(size, own) and not _is_said(told, own) for size, told in pairs)


def _is_said(size: int | ir.SymbolicDim, own: Collection[str]) -> bool:
    """Whether it is a number, or the size of an input."""
    return isinstance(size, int) or _name(size) in own


def _name(size: int | ir.SymbolicDim) -> str | None:
    return size.value if isinstance(size, ir.SymbolicDim) and isinstance(size.value, str) else None
