"""Triangular systems that a program solves row by row: each row takes what the rows above it have become.

transformers writes the gated delta rule so (Qwen3-Next, Qwen3.5, OLMo Hybrid, Kimi Linear): the strictly lower
triangular ``A`` becomes ``A'`` with ``A' = A + A·A'``, which is the inverse of ``I - A`` less ``I``.  The inverse of a
block follows from those of its halves: for 64 rows ten products of matrices instead of 63 rows of 13 operators each,
which torch takes minutes to translate.
Semantics: transformers/models/qwen3_next/modeling_qwen3_next.py, ``torch_chunk_gated_delta_rule``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

_ATEN = torch.ops.aten
_NODES = 13
"""Of one row."""


def solve_at_once(program: Any) -> None:
    """Write each such loop of a program as products of blocks, in place."""
    graph = program.graph_module.graph
    for below in [node for node in graph.nodes if _is_strictly_lower(node)]:
        loop = _loop(list(graph.nodes), below)
        later = [user for user in below.users if user not in loop]
        if not loop or any(user.op == "output" for user in later):
            continue
        with graph.inserting_before(loop[0]):
            solved = _inverse_less_identity(graph, below)
        for user in later:
            user.replace_input_with(below, solved)
        for node in reversed(loop):
            graph.erase_node(node)
    program.graph_module.recompile()


def _is_strictly_lower(node: Any) -> bool:
    """Whether it is a square matrix that is 0 on its diagonal and above, by the operators that made it."""
    shape = tuple(getattr(node.meta.get("val"), "shape", ()))[-2:]
    if len(shape) < 2 or not all(isinstance(size, int) for size in shape) or shape[0] != shape[1]:
        return False  # sizes that are not known are not compared: that would fix them
    while node.target is _ATEN.neg.default:
        node = node.args[0]
    if node.target is _ATEN.tril.default:
        return _diagonal(node) < 0
    return node.target is _ATEN.masked_fill.Scalar and node.args[2] == 0 and _is_upper(node.args[1])


def _is_upper(mask: Any) -> bool:
    """Whether a mask is true on the diagonal and above."""
    return mask.target is _ATEN.triu.default and _diagonal(mask) <= 0 and mask.args[0].target is _ATEN.ones.default


def _diagonal(node: Any) -> float:
    found = node.args[1] if len(node.args) > 1 else 0
    return found if isinstance(found, int) else math.nan


def _loop(nodes: Sequence[Any], below: Any) -> Sequence[Any]:
    """The nodes that solve it in place; empty where something else reads it first."""
    start = next((place for place, node in enumerate(nodes) if below in node.all_input_nodes), len(nodes))
    rows = range(1, below.meta["val"].shape[-1])
    loop = nodes[start : start + _NODES * len(rows)]
    parts = [loop[_NODES * (row - 1) : _NODES * row] for row in rows]
    return loop if all(_is_row(part, below, row) for part, row in zip(parts, rows, strict=True)) else ()


def _is_row(nodes: Sequence[Any], below: Any, row: int) -> bool:
    """Whether these are ``A[i, :i] = A[i, :i] + (A[i, :i, None] * A[:i, :i]).sum(-2)`` and are read by nothing else."""
    if len(nodes) != _NODES:
        return False
    read, part, kept, across, square, held, lifted, product, summed, total, again, place, _ = nodes
    last = below.meta["val"].dim() - 1
    expected = (
        (_ATEN.select.int, (below, last - 1, row)),
        (_ATEN.slice.Tensor, (read, last - 1, 0, row)),
        (_ATEN.clone.default, (part,)),
        (_ATEN.slice.Tensor, (below, last - 1, 0, row)),
        (_ATEN.slice.Tensor, (across, last, 0, row)),
        (_ATEN.clone.default, (square,)),
        (_ATEN.unsqueeze.default, (kept, -1)),
        (_ATEN.mul.Tensor, (lifted, held)),
        (_ATEN.sum.dim_IntList, (product, [-2])),
        (_ATEN.add.Tensor, (kept, summed)),
        (_ATEN.select.int, (below, last - 1, row)),
        (_ATEN.slice.Tensor, (again, last - 1, 0, row)),
        (_ATEN.copy_.default, (place, total)),
    )
    return all(
        node.target is target and node.args == args and not node.kwargs and set(node.users) <= set(nodes)
        for node, (target, args) in zip(nodes, expected, strict=True)
    )


def _inverse_less_identity(graph: Any, below: Any) -> Any:
    """``inverse(I - A) - I`` of a strictly lower triangular ``A``: blocks of one row, two, four …

    The inverse of [[P, 0], [-B, Q]] is [[p, 0], [q·B·p, q]], p and q being the inverses of P and Q.  Row r and column c
    belong to such a B where the highest bit in which r and c differ is the width of its block.
    """
    rows, like = below.meta["val"].shape[-1], below.meta["val"]
    call = partial(_call, graph, below.meta)
    places = call(torch.arange(rows), _ATEN.arange.default, rows)
    columns = call(torch.arange(rows)[:, None], _ATEN.unsqueeze.default, places, 1)
    differing = call(torch.ones(rows, rows).long(), _ATEN.bitwise_xor.Tensor, columns, places)
    flags = torch.ones(rows, rows).bool()
    identity = call(torch.eye(rows, dtype=like.dtype), _ATEN.eye.default, rows, dtype=like.dtype)
    inverse = identity
    for width in (1 << bit for bit in range((rows - 1).bit_length())):
        wide = call(flags, _ATEN.ge.Scalar, differing, width)
        narrow = call(flags, _ATEN.lt.Scalar, differing, 2 * width)
        block = call(like, _ATEN.where.ScalarOther, call(flags, _ATEN.logical_and.default, wide, narrow), below, 0.0)
        if inverse is not identity:
            block = call(like, _ATEN.matmul.default, inverse, call(like, _ATEN.matmul.default, block, inverse))
        inverse = call(like, _ATEN.add.Tensor, inverse, block)
    return call(like, _ATEN.sub.Tensor, inverse, identity)


def _call(graph: Any, origin: Mapping[str, Any], like: torch.Tensor, target: Any, *args: Any, **kwargs: Any) -> Any:
    """A node that gives something like ``like``, and stems from where ``origin`` says."""
    node = graph.call_function(target, args, kwargs)
    node.meta = {**origin, "val": like}
    return node
