"""Sizes that follow from the data, of which a file declares the number that one run gave.

before:  x [3, 4] → NonZero → y [2, 7]
after:   x [3, 4] → NonZero → y [2, y_1]

ONNX Runtime runs such a file with any size and says so on its log alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.edit import array_of

_COUNTS = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""What counts elements: no rule tells how many there will be."""
_SIZED_BY: Mapping[str, tuple[int, ...]] = {
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2),
    "Split": (1,),
    "Tile": (1,),
    "TopK": (1,),
}
"""The operands that tell a result's sizes."""
_PASSED_ON = frozenset({"Cast", "Concat", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""What hands on a number that was given as it is."""


def free_computed_sizes(model: ir.Model) -> None:
    """Let sizes of outputs be free that follow from the data by ONNX's rules, in place; names are ``<output>_<axis>``.

    A size stays as declared where its numbers were computed: what fills up to a hundred boxes, or cuts four elements
    from a place that is computed, has one size that no rule tells.  So it does behind an operator with graphs inside,
    and behind one of which ONNX's rules tell nothing.
    """
    following = _following(model.graph)
    declared = {value: value.shape for value in following if value.shape is not None}
    if not declared:
        return
    for value in declared:
        value.shape = _kept(value)
    common.ShapeInferencePass(check_type=False, strict_mode=False)(model)
    taken = _names(model.graph)
    for value, shape in declared.items():
        value.shape = _freed(value, shape, taken) if value.is_graph_output() else _told(value, shape)


def _following(graph: ir.Graph) -> list[ir.Value]:
    """The values whose sizes follow from what is counted or given, and from nothing that was computed to be a size."""
    given = {value for value in graph.inputs if not value.is_initializer()}
    found, settled = dict[ir.Value, None](), set[ir.Value]()
    for node in graph:
        taken, sizing = _operands(node), set(_sizing(node))
        if _hands_on(node) and taken & given and all(_is_stored(value) for value in taken - given):
            given.update(node.outputs)
        settles = _has_graphs(node) or not all(value in given or _is_stored(value) for value in sizing)
        if taken & settled or (settles and taken & found.keys()):
            settled.update(node.outputs)
        elif taken & found.keys() or (not settles and (_counts(node) or sizing & given)):
            found.update(dict.fromkeys(node.outputs))
    return list(found)


def _kept(value: ir.Value) -> ir.Shape | None:
    """The sizes of axes along which a cut does not run, of which ONNX's rules tell nothing; None of other operators."""
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Slice", "Split", "TopK"):
        return None
    cut, (x, *_) = _axes(node), node.inputs
    if cut is None or x is None or not x.shape:
        return None
    along = {axis % len(x.shape) for axis in cut}
    return ir.Shape([None if axis in along else dim for axis, dim in enumerate(x.shape)])


def _axes(node: ir.Node) -> tuple[int, ...] | None:
    """The axes of a Slice, Split or TopK; None where they are computed."""
    if node.op_type != "Slice":
        return (node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0),)
    starts, axes = (*node.inputs, *[None] * 4)[1:4:2]
    if len(node.inputs) == 1:  # up to opset 9 attributes tell
        return tuple(node.attributes.get_ints("axes", ())) or None
    if axes is not None:
        known = array_of(axes)
        return None if known is None else tuple(map(int, known))
    count = None if starts is None or starts.shape is None else starts.shape[0]
    return tuple(range(count)) if isinstance(count, int) else None


def _operands(node: ir.Node) -> set[ir.Value]:
    return {value for value in node.inputs if value is not None}


def _sizing(node: ir.Node) -> Iterator[ir.Value]:
    places = () if node.domain else _SIZED_BY.get(node.op_type, ())
    yield from (value for place, value in enumerate(node.inputs) if place in places and value is not None)


def _counts(node: ir.Node) -> bool:
    return node.op_type in _COUNTS and not node.domain


def _hands_on(node: ir.Node) -> bool:
    return node.op_type in _PASSED_ON and not node.domain


def _has_graphs(node: ir.Node) -> bool:
    return any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())


def _is_stored(value: ir.Value) -> bool:
    node = value.producer()
    return value.is_initializer() if node is None else node.op_type == "Constant" and not node.domain


def _names(graph: ir.Graph) -> set[str]:
    """The names that sizes have."""
    values = (*graph.inputs, *graph.outputs, *(value for node in graph for value in node.outputs))
    return {str(dim.value) for value in values for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}


def _freed(output: ir.Value, declared: ir.Shape, taken: set[str]) -> ir.Shape:
    """The sizes of an output: those that the rules do not tell get a name of their own, which is then ``taken``."""
    sizes: list[int | ir.SymbolicDim | str] = list(_told(output, declared))
    for axis, dim in enumerate(sizes):
        if isinstance(dim, ir.SymbolicDim) and _is_free(dim):
            name = f"{output.name}_{axis}"
            while name in taken:
                name += "_"
            taken.add(name)
            sizes[axis] = name
    return ir.Shape(sizes)


def _told(value: ir.Value, declared: ir.Shape) -> ir.Shape:
    """The declared sizes, without those that the rules do not tell; all of them where these tell no rank."""
    found = value.shape
    if found is None or len(found) != len(declared):
        return declared
    pairs = zip(declared, found, strict=True)
    return ir.Shape([None if isinstance(size, int) and _is_free(dim) else size for size, dim in pairs])


def _is_free(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, ir.SymbolicDim) and (dim.value is None or str(dim.value).startswith("unk__"))
