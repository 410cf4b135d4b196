"""Names and an order of constants that do not change from run to run.

tf2onnx ends the names that it makes in ``__`` and a count, and counts in the order of sets of objects, which is that of
their addresses.  Of equal constants it keeps the first in such an order, with its name.  Here names are counted, and
constants are stored, in the order in which the graph uses them, and constants that tf2onnx made have one name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import onnx

_CONSTANT = "const"
_COUNT = re.compile(r"__(\d+)(?=(:\d+)?$)")


def renumber(proto: onnx.ModelProto) -> None:
    """Count anew in place; the names of inputs and outputs stay, and no two names become one."""
    graph = proto.graph
    made = {tensor.name for each in _graphs(graph) for tensor in each.initializer if _COUNT.search(tensor.name)}
    kept = {value.name for value in (*graph.input, *graph.output)}
    counts = {found[1]: found[1] for name in kept if (found := _COUNT.search(name))}
    taken = set(counts)

    def renamed(name: str) -> str:
        found = _COUNT.search(name)
        if found is None or name in kept:
            return name
        if found[1] not in counts:
            counts[found[1]] = next(each for each in map(str, count(len(counts) + 1)) if each not in taken)
            taken.add(counts[found[1]])
        start = _CONSTANT if name in made else name[: found.start()]
        return f"{start}__{counts[found[1]]}{name[found.end() :]}"

    graphs = tuple(_graphs(graph))
    for each in graphs:
        for value in (*each.input, *each.output):
            _rename(value, renamed)
        for node in each.node:
            node.name = renamed(node.name)
            for names in (node.input, node.output):
                names[:] = [renamed(name) for name in names]
    for each in graphs:  # their order is that of addresses, too
        for tensor in each.initializer:
            tensor.name = renamed(tensor.name)
        for value in each.value_info:
            _rename(value, renamed)
        _sort(each.initializer, graphs)
        _sort(each.value_info, graphs)


def _rename(value: onnx.ValueInfoProto, renamed: Callable[[str], str]) -> None:
    value.name = renamed(value.name)
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.dim_param = renamed(dim.dim_param)


def _sort(named: Any, graphs: Sequence[onnx.GraphProto]) -> None:
    """A repeated field in the order in which the graphs name its members; what they do not name comes last."""
    names = (name for each in graphs for node in each.node for name in (*node.input, *node.output))
    order = {name: place for place, name in enumerate(dict.fromkeys(names))}
    sorted_ = sorted(named, key=lambda each: (order.get(each.name, len(order)), each.name))
    copies = [type(each).FromString(each.SerializeToString()) for each in sorted_]
    del named[:]
    named.extend(copies)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)
