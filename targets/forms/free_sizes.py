"""The way out of a refusal over sizes that are only known at run time: which dimensions of the model to fix."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import onnx_ir as ir

from convertkit.errors import UnknownSize, Unsupported

_OF_DATA = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose results are as long as the values say: no dimension of the model fixes that."""


def ways_out(refusal: Unsupported, node: ir.Node, others: tuple[str, ...]) -> tuple[str, ...]:
    """``others``, behind the sizes to fix where ``refusal`` of ``node`` is over sizes that follow from the inputs'."""
    if not isinstance(refusal, UnknownSize):
        return others
    dims = _dims_behind(node)
    return (" ".join(f"--static {shlex.quote(f'{dim}=SIZE')}" for dim in dims), *others) if dims else others


def follows_sizes(value: ir.Value) -> bool:
    """Whether ``value`` is computed from sizes of tensors alone, so that fixed sizes make it a constant."""
    producer = value.producer()
    if producer is None:
        return value.const_value is not None
    if producer.op_type in ("Shape", "Size"):
        return True
    if any(each.type == ir.AttributeType.GRAPH for each in producer.attributes.values()):
        return False  # what a body takes from outside is not among the inputs
    return all(each is None or follows_sizes(each) for each in producer.inputs)


def _dims_behind(node: ir.Node) -> list[str]:
    """Dynamic dimensions of the inputs that ``node`` is computed from: those that its own values have, else all.

    The batch is not among them where there are others.
    """
    above = list(_above(node))
    if any(each.op_type in _OF_DATA for each in above):
        return []
    given = dict.fromkeys(value for each in (node, *above) for value in each.inputs if value is not None)
    sizes = [_dynamic(value) for value in given if value.is_graph_input()]
    names = list(dict.fromkeys(name for each in sizes for name in each))
    leading = {each[0] for each in sizes if each}
    inner = [name for name in names if {name} != leading] or names
    own = [size for value in node.inputs if value is not None for size in _dynamic(value)]
    return [name for name in inner if any(_holds(size, name) for size in own)] or inner


def _above(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that ``node`` is computed from, each once."""
    seen: set[ir.Node] = {node}
    left = [node]
    while left:
        for value in left.pop().inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer not in seen:
                seen.add(producer)
                left.append(producer)
                yield producer


def _dynamic(value: ir.Value) -> list[str]:
    """The sizes of ``value`` that have names, or are computed from such."""
    sizes = () if value.shape is None else value.shape
    return [str(size) for size in sizes if isinstance(size, ir.SymbolicDim) and size.value is not None]


def _holds(size: str, name: str) -> bool:
    """Whether a size is computed from ``name``, as ``floor(H/2)`` is from ``H``."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", size) is not None
