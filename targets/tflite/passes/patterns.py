"""Chains of small operators that are one TFLite operator: GELU, and products with a transposed matrix."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, bypass, only_user
from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.passes.part import Part


def fuse_gelu(part: Part) -> None:
    """Recognise GELU, exact and with tanh, in the forms that exporters write.

    before:  x → Mul(1/√2) → Erf → Add(1) → Mul(x) → Mul(0.5)   (any order of the factors)
    after:   x → Gelu
    """
    for node in list(part.graph):
        if node.domain != "" or node.op_type not in ("Erf", "Tanh"):
            continue
        x = _erf_input(node) if node.op_type == "Erf" else _tanh_input(node)
        last = None if x is None else _half_of_one_plus(node, x)
        if x is None or last is None or x.shape != last.outputs[0].shape:
            continue
        made = ir.node("Gelu", [x], {"approximate": "tanh" if node.op_type == "Tanh" else "none"}, domain=OWN)
        made.name, result = f"{last.name}/gelu", made.outputs[0]
        set_source(made, last)
        result.name = f"{last.outputs[0].name}/gelu"
        typed(result, last.outputs[0].shape, x.dtype)
        part.graph.insert_after(last, made)
        bypass(last, result)


def _erf_input(node: ir.Node) -> ir.Value | None:
    """``x`` of ``erf(x / √2)``."""
    inner = node.inputs[0].producer() if node.inputs[0] is not None else None
    if inner is None or inner.op_type not in ("Mul", "Div"):
        return None
    if inner.op_type == "Div":
        return inner.inputs[0] if _is(inner.inputs[1], math.sqrt(2)) else None
    return _other(inner, math.sqrt(0.5))


def _tanh_input(node: ir.Node) -> ir.Value | None:
    """``x`` of ``tanh(√(2/π) (x + 0.044715 x³))``."""
    outer = node.inputs[0].producer() if node.inputs[0] is not None else None
    total = None if outer is None or outer.op_type != "Mul" else _other(outer, math.sqrt(2 / math.pi))
    addition = None if total is None else total.producer()
    if addition is None or addition.op_type != "Add":
        return None
    for place in (0, 1):
        x, term = addition.inputs[place], addition.inputs[1 - place]
        scaled = None if term is None else term.producer()
        cube = None if scaled is None or scaled.op_type != "Mul" else _other(scaled, 0.044715)
        if x is not None and cube is not None and _is_cube(cube, x):
            return x
    return None


def _is_cube(value: ir.Value, x: ir.Value) -> bool:
    node = value.producer()
    if node is None:
        return False
    if node.op_type == "Pow":
        return node.inputs[0] is x and _is(node.inputs[1], 3.0)
    if node.op_type != "Mul":
        return False
    for square, other in (node.inputs, tuple(node.inputs)[::-1]):
        inner = None if square is None else square.producer()
        if other is x and inner is not None and inner.op_type == "Mul" and all(each is x for each in inner.inputs):
            return True
    return False


def _half_of_one_plus(node: ir.Node, x: ir.Value) -> ir.Node | None:
    """The last node of ``0.5 x (1 + f)``, whichever factor comes first, where nothing else uses the parts."""
    plus = only_user(node.outputs[0])
    if plus is None or plus.op_type != "Add" or _other(plus, 1.0) is not node.outputs[0]:
        return None
    product = only_user(plus.outputs[0])
    if product is None or product.op_type != "Mul":
        return None
    factor = product.inputs[1] if product.inputs[0] is plus.outputs[0] else product.inputs[0]
    if factor is not None and _is_half_of(factor, x):
        return product
    last = only_user(product.outputs[0])
    if last is None or last.op_type not in ("Mul", "Div"):
        return None
    remaining = last.inputs[1] if last.inputs[0] is product.outputs[0] else last.inputs[0]
    if factor is x and (_is(remaining, 0.5) if last.op_type == "Mul" else _is(remaining, 2.0)):
        return last
    return last if _is(factor, 0.5) and remaining is x and last.op_type == "Mul" else None


def _is_half_of(value: ir.Value, x: ir.Value) -> bool:
    node = value.producer()
    if node is None:
        return False
    if node.op_type == "Div":
        return node.inputs[0] is x and _is(node.inputs[1], 2.0)
    return node.op_type == "Mul" and _other(node, 0.5) is x


def _other(node: ir.Node, number: float) -> ir.Value | None:
    """The operand of a commutative node whose other operand is ``number``."""
    for place in (0, 1):
        if _is(node.inputs[1 - place], number):
            return node.inputs[place]
    return None


def _is(value: ir.Value | None, number: float) -> bool:
    """Whether ``value`` is ``number``; one that float32 does not hold may be rounded either way.

    A place of the factor in front of erf or tanh counts as much as the product's own rounding.
    """
    array = array_of(value)
    if array is None or array.size != 1:
        return False
    nearest = np.float32(number)
    slack = 0.0 if float(nearest) == number else float(np.spacing(nearest))
    return abs(float(array.reshape(-1)[0]) - float(nearest)) <= slack


def fuse_transposed_products(part: Part) -> None:
    """MatMul of a tensor whose last two axes were just swapped: BATCH_MATMUL reads it either way.

    before:  k → Transpose(0,1,3,2) → MatMul(q, ·)
    after:   BatchMatMul(q, k, adj_y)

    A Transpose that moves other axes too keeps those; a swap between two reshapes counts as one.
    """
    for node in list(part.graph):
        if node.op_type == "Transpose" and node.domain == "":
            _through_reshapes(part.graph, node)
    for node in list(part.graph):
        if node.op_type != "MatMul" or node.domain != "" or any(array_of(value) is not None for value in node.inputs):
            continue
        flags = [_swapped(part.graph, node, place) for place in (0, 1)]
        if any(flags):
            node.op_type, node.domain = "BatchMatMul", OWN
            node.attributes["adj_x"] = ir.AttrInt64("adj_x", int(flags[0]))
            node.attributes["adj_y"] = ir.AttrInt64("adj_y", int(flags[1]))


def _swapped(graph: ir.Graph, node: ir.Node, place: int) -> bool:
    """Take the swap of the last two axes out of the Transpose that makes an input."""
    chain = _scalings(node, place)
    if chain is None:
        return False
    value, moved, between = chain
    perm = moved.attributes.get("perm")
    source = moved.inputs[0]
    if perm is None or source is None or value.shape is None or len(perm.value) < 3:
        return False
    order = list(perm.value)
    swapped = [*order[:-2], order[-1], order[-2]]
    is_plain = swapped == sorted(swapped)
    if not is_plain and order[-2] < order[-1]:
        return False  # the swapped order would be the harder one to transpose to
    sizes = list(value.shape)
    for each in (value, *(scaling.outputs[0] for scaling in between)):
        each.shape = ir.Shape([*sizes[:-2], sizes[-1], sizes[-2]])
    if is_plain:
        bypass(moved, source)
    else:
        moved.attributes["perm"] = ir.AttrInt64s("perm", swapped)
    return True


def _scalings(node: ir.Node, place: int) -> tuple[ir.Value, ir.Node, list[ir.Node]] | None:
    """The transposed value behind an input, its Transpose, and the scalings by one number in between."""
    value, user = node.inputs[place], node
    between: list[ir.Node] = []
    while value is not None and only_user(value) is user:
        producer = value.producer()
        if producer is None:
            return None
        if producer.op_type == "Transpose" and producer.domain == "":
            return value, producer, between
        other = array_of(producer.inputs[1]) if producer.op_type in ("Mul", "Div") else None
        if other is None or other.size != 1 or other.ndim > 2:
            return None
        between.append(producer)
        value, user = producer.inputs[0], producer
    return None


def _through_reshapes(graph: ir.Graph, node: ir.Node) -> None:
    """Reshape to 3-D, swap the last two axes, reshape back: one Transpose of the last two axes."""
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    after = only_user(node.outputs[0])
    perm = node.attributes.get("perm")
    if before is None or after is None or perm is None or list(perm.value) != [0, 2, 1]:
        return
    if before.op_type != "Reshape" or after.op_type != "Reshape" or only_user(before.outputs[0]) is not node:
        return
    source, result = before.inputs[0], after.outputs[0]
    if source is None or source.shape is None or result.shape is None:
        return
    sizes, wanted = list(source.shape), list(result.shape)
    if sizes[-2:] != wanted[:-3:-1] or sizes[:-2] != wanted[:-2] or len(sizes) < 3:
        return
    inner = before.outputs[0].shape
    if inner is None or list(inner)[1:] != sizes[-2:] or not all(isinstance(size, int) for size in sizes[-2:]):
        return
    order = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
    made = ir.node("Transpose", [source], {"perm": order}, name=f"{node.name}/direct")
    set_source(made, node)
    made.outputs[0].name = f"{result.name}/direct"
    typed(made.outputs[0], result.shape, source.dtype)
    graph.insert_after(after, made)
    bypass(after, made.outputs[0])
