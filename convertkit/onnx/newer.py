"""Opsets above 26 as opset 26, which ONNX Runtime loads; ONNX's version converter has no adapters for that.

Most of what changed admits more types.  An operator keeps its node where the older opset has it for the types at hand;
else it is written out by a rule of ours or by the body that ONNX defines it by.
Source: the schemas of both opsets (ONNX operators' changelog).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common
from onnx import defs

from convertkit.errors import Unsupported
from convertkit.onnx.function_bodies import body_of, defaults, type_of

_DOMAIN = "convertkit.newer"
_DEEPEST = 8
"""Of bodies in which operators are that have bodies."""


def to_older(model: ir.Model, opset: int) -> None:
    """Write a model of a newer opset as one of ``opset``, in place; ``Unsupported`` names what has no counterpart."""
    newest = model.graph.opset_imports[""]
    if newest > defs.onnx_opset_version():
        raise Unsupported(
            f"the model's opset {newest} is not known: ONNX {onnx.__version__} ends at {defs.onnx_opset_version()}"
        )
    changed = [node for node in model.graph.all_nodes() if not node.domain and _since(node, newest) > opset]
    _replace(model, changed, opset, lambda node: _rewritten(node, newest, opset))


def write_out(model: ir.Model, opset: int) -> bool:
    """Write operators that ``opset`` lacks by what ONNX defines them by, in place; whether any was.

    The model keeps its opset.  What ONNX does not define by others stays, and so does what it defines by that alone.
    """
    newest, written = model.graph.opset_imports[""], False
    for _ in range(_DEEPEST):
        lacking = [node for node in model.graph.all_nodes() if not node.domain and _lacks(node, opset)]
        if not _replace(model, lacking, newest, lambda node: _body_or_none(node, newest)):
            break
        written = True
    return written


def _lacks(node: ir.Node, opset: int) -> bool:
    """Whether ``opset`` does not have the operator, or has another one of that name."""
    return not defs.has(node.op_type, opset) or (node.op_type in _OTHERS and opset < _OTHERS[node.op_type])


def _body_or_none(node: ir.Node, opset: int) -> ir.Function | None:
    node.version = None
    body = _body(node, opset)
    return None if body is None else _as_function(node, body, opset, opset)


def _replace(
    model: ir.Model, nodes: Sequence[ir.Node], opset: int, as_function: Callable[[ir.Node], ir.Function | None]
) -> bool:
    """Put what the functions of ``nodes`` hold in their places; whether any was.  The model is of ``opset`` then."""
    if any(value is not None and value.dtype is None for node in nodes for value in node.inputs):
        common.ShapeInferencePass()(model)
    functions = [function for node in nodes if (function := as_function(node)) is not None]
    for function in functions:
        model.functions[function.identifier()] = function
    model.graph.opset_imports[""] = opset
    for function in model.functions.values():
        function.opset_imports[""] = opset
    if functions:
        common.InlinePass()(model)
        model.graph.opset_imports.pop(_DOMAIN, None)
    return bool(functions)


def _since(node: ir.Node, opset: int) -> int:
    return int(defs.get_schema(node.op_type, opset).since_version) if defs.has(node.op_type, opset) else 0


def _rewritten(node: ir.Node, newest: int, opset: int) -> ir.Function | None:
    """The function that ``node`` now calls; None where the older opset has the node itself."""
    node.version = None
    if is_older(node, opset):
        return None
    body = _body(node, newest)
    if body is None:
        raise Unsupported(f"opset {opset} has no such operator for these types", subject=_title(node, newest))
    return _as_function(node, body, newest, opset)


def _title(node: ir.Node, opset: int) -> str:
    return f"{node.name or node.op_type} ({node.op_type}-{opset})"


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """By a rule of ours or by ONNX's own; None where there is neither."""
    rule = _RULES.get(node.op_type)
    body = rule(node) if rule is not None else None
    if body is not None:
        return body
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    return body_of(proto, [type_of(value) for value in node.inputs], opset)


def _as_function(node: ir.Node, body: onnx.FunctionProto, newest: int, opset: int) -> ir.Function:
    """``body`` in operators of ``opset``, which ``node`` of opset ``newest`` now calls."""
    title = _title(node, newest)
    for name, value in defaults(node.op_type, newest).items():
        if name not in node.attributes:
            node.attributes.add(ir.from_proto(_named(value, name)))
    body.domain, body.name, body.overload = _DOMAIN, f"{node.op_type}_{node.name or id(node)}", ""
    function: ir.Function = ir.from_proto(body)
    function.opset_imports[""] = opset
    for count, inner in enumerate(function):
        inner.name = f"{node.name}/{inner.op_type}_{count}"
        if not inner.domain and _since(inner, newest) > opset and not is_older(inner, opset):
            raise Unsupported(f"its body needs {inner.op_type}, which opset {opset} does not have", subject=title)
    node.domain, node.op_type = _DOMAIN, body.name
    return function


def _named(value: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    named = onnx.AttributeProto()
    named.CopyFrom(value)
    named.name = name
    return named


def is_older(node: ir.Node, opset: int) -> bool:
    """Whether ``opset`` has the operator for these types; attributes that it lacks go where they have their default."""
    if _lacks(node, opset):
        return False
    if node.op_type in _MEANS_MORE and not _MEANS_MORE[node.op_type](node):
        return False
    old, new = defs.get_schema(node.op_type, opset), defaults(node.op_type, defs.onnx_opset_version())
    if len(node.inputs) > old.max_input and node.inputs[-1] is not None:
        return False
    allowed = {each.type_param_str: set(each.allowed_type_strs) for each in old.type_constraints}
    for place, value in enumerate(node.inputs):
        formal = old.inputs[min(place, len(old.inputs) - 1)]
        kind = None if value is None or value.dtype is None else f"tensor({_spelled(value.dtype)})"
        if kind is not None and formal.type_str in allowed and kind not in allowed[formal.type_str]:
            return False
    extra = [name for name in node.attributes if name not in old.attributes]
    if any(name not in new or ir.from_proto(new[name]).value != node.attributes[name].value for name in extra):
        return False
    for name in extra:
        del node.attributes[name]
    return True


def _spelled(dtype: ir.DataType) -> str:
    """As schemas spell it."""
    return str(dtype.name).lower()


def _is_plain_mod(node: ir.Node) -> bool:
    """Whether it is of integers, or C's: the older Mod has no remainder with the divisor's sign for floats."""
    operand = node.inputs[0]
    floats = operand is not None and operand.dtype is not None and operand.dtype.is_floating_point()
    return not floats or node.attributes.get_int("fmod", 0) == 1


_MEANS_MORE: Mapping[str, Callable[[ir.Node], bool]] = {"Mod": _is_plain_mod}
"""Operators that mean more than they did for types that they had before, and whether a node is of the older kind."""
_OTHERS: Mapping[str, int] = {"GroupNormalization": 21}
"""Operators that meant something else before an opset: scale and bias of that one were those of groups."""


def _mod(node: ir.Node) -> onnx.FunctionProto:
    """C's remainder, and the divisor on top where their signs differ; a zero takes the divisor's sign."""
    return _function(
        node,
        """
        r = Mod <fmod = 1> (x, y)
        zero = Sub (r, r)
        is_zero = Equal (r, zero)
        is_below = Less (r, zero)
        divides_below = Less (y, zero)
        apart = Xor (is_below, divides_below)
        with_divisor = Add (r, y)
        moved = Where (apart, with_divisor, r)
        negative_zero = Neg (zero)
        signed_zero = Where (divides_below, negative_zero, zero)
        z = Where (is_zero, signed_zero, moved)
        """,
    )


def _bit_shift(node: ir.Node) -> onnx.FunctionProto:
    """Of signed integers: bits move as those of unsigned ones, and to the right the sign comes in."""
    operand = node.inputs[0]
    assert operand is not None
    assert operand.dtype is not None
    signed, direction = operand.dtype, node.attributes["direction"].as_string()
    unsigned = int(ir.DataType.from_numpy(np.dtype(f"u{signed.numpy().name}")))
    shift = f"""
        bits = Cast <to = {unsigned}> (positive)
        places = Cast <to = {unsigned}> (y)
        moved = BitShift <direction = "{direction}"> (bits, places)
        back = Cast <to = {int(signed)}> (moved)
        """
    if direction == "LEFT":
        return _function(node, f"positive = Identity (x) {shift} z = Identity (back)")
    return _function(
        node,
        f"""
        zero = Sub (x, x)
        negative = Less (x, zero)
        inverse = BitwiseNot (x)
        positive = Where (negative, inverse, x)
        {shift}
        again = BitwiseNot (back)
        z = Where (negative, again, back)
        """,
    )


def _group_norm(node: ir.Node) -> onnx.FunctionProto | None:
    """The norm of groups as that of channels; ONNX's own body has a difference of squares, which cancels."""
    operand = node.inputs[0]
    if operand is None or operand.dtype != ir.DataType.FLOAT:
        return None
    groups = node.attributes["num_groups"].as_int()
    ones, zeros = ([each] * groups for each in (1.0, 0.0))
    return _function(
        node,
        f"""
        by_groups = Constant <value_ints = [0, {groups}, -1]> ()
        rows = Reshape (x, by_groups)
        one = Constant <value_floats = {ones}> ()
        zero = Constant <value_floats = {zeros}> ()
        normal = InstanceNormalization <epsilon: float = @epsilon> (rows, one, zero)
        all = Constant <value_ints = [0]> ()
        channels = Shape (scale)
        rest = Constant <value_ints = [-1]> ()
        by_channels = Concat <axis = 0> (all, channels, rest)
        columns = Reshape (normal, by_channels)
        behind = Constant <value_ints = [1]> ()
        factors = Unsqueeze (scale, behind)
        summands = Unsqueeze (bias, behind)
        scaled = Mul (columns, factors)
        moved = Add (scaled, summands)
        sizes = Shape (x)
        y = Reshape (moved, sizes)
        """,
        "(x, scale, bias) => (y)",
    )


def _function(node: ir.Node, body: str, ports: str = "(x, y) => (z)") -> onnx.FunctionProto:
    """A function in ONNX's text form, which has the node's attributes."""
    text = f'<opset_import: ["" : 18], domain: "{_DOMAIN}"> F {ports} {{ {body} }}'
    function = onnx.parser.parse_function(text)
    function.attribute.extend(name for name in node.attributes if name not in function.attribute)
    return function


_RULES: Mapping[str, Callable[[ir.Node], onnx.FunctionProto | None]] = {
    "BitShift": _bit_shift,
    "GroupNormalization": _group_norm,
    "Mod": _mod,
}
