"""Matrix products: operands in the order that needs fewer transposes, and bias taken in."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from convertkit.onnx.edit import (
    array_of,
    dropped,
    initializer,
    inserted,
    is_float32,
    only_user,
    producer,
    replaced,
    sizes,
)


def recognise_swapped_product(node: ir.Node) -> None:
    """A product of activations that comes out transposed, as JAX orders attention.

    before:  Transpose(MatMul(Transpose(a), Transpose(b)))
    after:   Transpose(MatMul(b', a')), the transposes that then change nothing left out

    ``A·B`` is ``(Bᵀ·Aᵀ)ᵀ``; done where transposes are saved.
    """
    after = None if node.op_type != "MatMul" or node.domain != "" else only_user(node.outputs[0])
    left, right = node.inputs if after is not None else (None, None)
    rank = len(sizes(node.outputs[0]) or ())
    if after is None or after.op_type != "Transpose" or left is None or right is None or rank < 2:
        return
    if not len(sizes(left) or ()) == len(sizes(right) or ()) == rank or array_of(left) is not None:
        return
    if array_of(right) is not None:
        return
    last = [*range(rank - 2), rank - 1, rank - 2]
    sides = [_source(each, rank) for each in (left, right)]
    turned = [[perm[axis] for axis in last] for _, perm in sides]
    final = [last[axis] for axis in _perm(after, rank)]
    before = [perm for _, perm in sides] + [_perm(after, rank)]
    if sum(map(_moves, before)) <= sum(map(_moves, [*turned, final])):
        return
    a, b = (_transposed(node, source, perm) for (source, _), perm in zip(sides, turned, strict=True))
    made = inserted(node, "MatMul", [b, a], node.outputs[0], shape=_turned(node.outputs[0], last))
    if _moves(final):
        replaced(after, "Transpose", [made.outputs[0]], {"perm": final})
    else:
        dropped(after, made.outputs[0])
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def _source(value: ir.Value, rank: int) -> tuple[ir.Value, list[int]]:
    """What a value transposes and how; itself, unmoved, where it does not."""
    node = producer(value, "Transpose")
    if node is None or node.inputs[0] is None:
        return value, list(range(rank))
    return node.inputs[0], _perm(node, rank)


def _perm(node: ir.Node, rank: int) -> list[int]:
    return list(node.attributes.get_ints("perm", tuple(range(rank))[::-1]))


def _moves(perm: Sequence[int]) -> bool:
    return list(perm) != list(range(len(perm)))


def _turned(value: ir.Value, perm: Sequence[int]) -> ir.Shape | None:
    return None if value.shape is None else ir.Shape([value.shape[axis] for axis in perm])


def _transposed(before: ir.Node, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    if not _moves(perm):
        return value
    return inserted(before, "Transpose", [value], value, {"perm": list(perm)}, _turned(value, perm)).outputs[0]


def recognise_gemm(node: ir.Node) -> None:
    """A matrix times constant weights plus a constant row.

    before:  Add(MatMul(x, W), b), all of rank 2 but b, which may be of rank 1
    after:   Gemm(x, W, b)
    """
    if node.op_type != "Add" or node.domain != "" or not is_float32(node.outputs[0]):
        return
    for place in (0, 1):
        product, bias = producer(node.inputs[place], "MatMul"), array_of(node.inputs[1 - place])
        if product is None or bias is None or only_user(product.outputs[0]) is not node:
            continue
        x, weights = product.inputs
        columns = sizes(weights)
        if x is None or weights is None or columns is None or len(columns) != 2 or len(sizes(x) or ()) != 2:
            continue
        if array_of(weights) is None or bias.ndim > 2 or bias.size != columns[1] or bias.shape[-1:] != columns[1:]:
            continue
        row = initializer(node, bias.reshape(-1), f"{node.outputs[0].name}/bias")
        replaced(node, "Gemm", [x, weights, row])
        return
