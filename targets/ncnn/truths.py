"""Truths as the numbers 0 and 1, since ncnn computes in float32 alone: the masks of attention.

Infinity is what overflows, for the text format has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.onnx.edit import array_of, producer
from convertkit.targets.forms.writing import Place, dims

_FLOAT, _BOOL = ir.DataType.FLOAT, ir.DataType.BOOL
_MOVES = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
_EXTREMES = frozenset({"ReduceMax", "ReduceMin"})
_HUGE, _LARGE = np.float32(3e38), 1e30
_LOWEST = np.finfo(np.float32).min
_UNDEFINED = frozenset(
    {"Acos", "Asin", "Atanh", "Acosh", "Div", "Exp", "Log", "Pow", "Reciprocal", "ReduceLogSum", "Sqrt"}
)
"""Operators that finite numbers take to infinity or NaN, which times 0 is not 0."""
_SUMS = frozenset({"Conv", "ConvTranspose", "Gemm", "LayerNormalization", "MatMul", "Softmax"})


def write_truths(model: ir.Model) -> None:
    """All nodes whose truths are numbers by then, in place; others stay, and lowering refuses them."""
    nodes = [node for node in model.graph if not node.domain and _is_inner(node)]
    counted = {node for node in nodes if node.op_type == "Cast" and [each.dtype for each in _inputs(node)] == [_BOOL]}
    for node in nodes:
        if node in counted:
            _count(node)
        elif node.op_type in _FORMS:
            _FORMS[node.op_type](node)
        elif node.op_type in _MOVES and node.outputs[0].dtype == _BOOL:
            _move(node)
    RemoveUnusedNodesPass()(model)


def _inputs(node: ir.Node) -> list[ir.Value]:
    return [each for each in node.inputs if each is not None]


def _is_inner(node: ir.Node) -> bool:
    """Whether what it gives is delivered as real numbers, or not at all."""
    return not any(each.is_graph_output() and each.dtype != _FLOAT for each in node.outputs)


def _move(node: ir.Node) -> None:
    values = [_number(Place(node), each) for each in node.inputs[: None if node.op_type == "Concat" else 1]]
    for at, value in enumerate(values):
        if value is None:
            return
        node.replace_input_with(at, value)
    node.outputs[0].type = ir.TensorType(_FLOAT)


def _cast(node: ir.Node) -> None:
    """To bool: x != 0."""
    place, x = Place(node), _number(Place(node), node.inputs[0])
    if x is not None and node.outputs[0].dtype == _BOOL:
        place.becomes(_step(place, place.op("Abs", x)))


def _count(node: ir.Node) -> None:
    """Truths as other numbers: themselves, as integers where only their extremes are taken."""
    place, x, made = Place(node), _number(Place(node), node.inputs[0]), node.outputs[0]
    is_real = made.dtype == _FLOAT or all(user.op_type in _EXTREMES and not at for user, at in made.uses())
    if x is not None and is_real:
        place.becomes(place.op("Identity", x))


def _and(node: ir.Node) -> None:
    _of_two(node, lambda place, x, y: place.op("Mul", x, y, shape=dims(node.outputs[0])))


def _or(node: ir.Node) -> None:
    _of_two(node, lambda place, x, y: place.op("Max", x, y, shape=dims(node.outputs[0])))


def _of_two(node: ir.Node, form: Callable[[Place, ir.Value, ir.Value], ir.Value]) -> None:
    place = Place(node)
    x, y = (_number(place, each) for each in node.inputs)
    if x is not None and y is not None:
        place.becomes(form(place, x, y))


def _not(node: ir.Node) -> None:
    place = Place(node)
    x = _number(place, node.inputs[0])
    if x is not None:
        place.becomes(_other(place, x))


def _extreme(node: ir.Node) -> None:
    """Of truths that were integers: whether all are, or any is."""
    if _number(Place(node), node.inputs[0]) is not None:
        node.outputs[0].type = ir.TensorType(_FLOAT)


def _where(node: ir.Node) -> None:
    """A choice as a sum of two products; where a branch may not be finite it stays.

    before:  y = Where (c, a, b)
    after:   y = c a + (1 - c) b
    """
    guarded = producer(node.inputs[0], "IsNaN")
    if guarded is not None:
        _softmax(node, guarded)
        return
    place = Place(node)
    c, a, b = (_number(place, each) for each in node.inputs)
    if c is None or a is None or b is None or not (_is_chosen_from(a) and _is_chosen_from(b)):
        return
    terms = [_term(place, *pair) for pair in ((c, a), (_other(place, c), b))]
    kept = [each for each in terms if each is not None]
    shape = dims(node.outputs[0])
    if None not in terms or (len(kept) == 1 and dims(kept[0]) == shape):
        place.becomes(kept[0] if len(kept) == 1 else place.op("Add", *kept, shape=shape))


def _term(place: Place, chosen: ir.Value, value: ir.Value) -> ir.Value | None:
    """``value`` where ``chosen`` is 1, else 0; None where that is 0 everywhere."""
    known = array_of(value)
    if known is not None and known.size == 1 and not known.any():
        return None
    if known is None or np.isfinite(known).all():
        return place.op("Mul", chosen, value, shape=np.broadcast_shapes(_sizes(chosen), _sizes(value)))
    signed = np.float32(np.copysign(_HUGE, known.reshape(-1)[0]))
    return place.op("Mul", place.op("Mul", chosen, place.constant(signed)), place.constant(np.float32(10)))


def _softmax(node: ir.Node, guarded: ir.Node) -> None:
    """Rows of -inf alone, of which a softmax makes NaN, and attention 0.

    before:  p = Softmax (t), y = Where (IsNaN (p), 0, p)
    after:   y = Softmax (Max (t, lowest)) ReduceMax (t > -inf)
    """
    made, zero = guarded.inputs[0], array_of(node.inputs[1])
    softmax = producer(made, "Softmax")
    if softmax is None or node.inputs[2] is not made or zero is None or zero.any() or zero.size != 1:
        return
    place, t, axis = Place(node), softmax.inputs[0], softmax.attributes.get_int("axis", -1)
    assert t is not None
    shape = list(_sizes(t))
    shape[axis] = 1
    quarter = place.op("Mul", t, place.constant(np.float32(0.25)))
    finite = _step(place, place.op("Add", quarter, place.constant(np.float32(1e38))))
    alive = place.op("ReduceMax", finite, place.constant(np.array([axis])), shape=shape, keepdims=1)
    least = place.op("Max", t, place.constant(_LOWEST))
    place.becomes(place.op("Mul", place.op("Softmax", least, axis=axis), alive))


def _step(place: Place, x: ir.Value) -> ir.Value:
    """1 for numbers above 0, else 0."""
    ends = [place.constant(np.float32(each)) for each in (0, 1)]
    return place.op("Clip", place.op("Mul", x, place.constant(_HUGE)), *ends)


def _other(place: Place, x: ir.Value) -> ir.Value:
    return place.op("Sub", place.constant(np.float32(1)), x, like=x)


def _number(place: Place, value: ir.Value | None) -> ir.Value | None:
    """``value`` as float32; None where it is not computed as such, or its sizes are not known."""
    sizes = dims(value)
    if value is None or sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    known = array_of(value)
    if known is not None and known.dtype == np.bool_:
        return place.constant(known.astype(np.float32))
    return value if value.dtype == _FLOAT else None


def _is_chosen_from(value: ir.Value) -> bool:
    """Whether it may be a branch: stored and of one infinity or finite, or computed and finite of finite numbers."""
    known = array_of(value)
    if known is None:
        return not _is_undefined(value)
    return not np.isnan(known).any() and (known.size == 1 or bool(np.isfinite(known).all()))


def _is_undefined(value: ir.Value) -> bool:
    """Whether it may be infinite or NaN, as far as what is computed element by element tells."""
    known, made = array_of(value), value.producer()
    if known is not None:
        return not np.abs(known).max(initial=0) < _LARGE
    if made is None or made.op_type in _SUMS:
        return False
    return made.op_type in _UNDEFINED or any(_is_undefined(each) for each in _inputs(made))


def _sizes(value: ir.Value) -> tuple[int, ...]:
    return tuple(size for size in dims(value) or () if isinstance(size, int))


_FORMS: Mapping[str, Callable[[ir.Node], None]] = {
    "And": _and,
    "Cast": _cast,
    "Not": _not,
    "Or": _or,
    **dict.fromkeys(_EXTREMES, _extreme),
    "Where": _where,
}
