"""Names that do not change from run to run.

tf2onnx ends the names that it makes in ``__`` and a count, and counts in the order of sets of objects, which is that of
their addresses.  Here they are counted in the order of the graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import onnx

_COUNT = re.compile(r"__(\d+)(?=(:\d+)?$)")


def renumber(proto: onnx.ModelProto) -> None:
    """Count anew in place; the names of inputs and outputs stay, and no two names become one."""
    graph = proto.graph
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
        return f"{name[: found.start()]}__{counts[found[1]]}{name[found.end() :]}"

    for each in _graphs(graph):
        for value in (*each.input, *each.output, *each.value_info):
            value.name = renamed(value.name)
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = renamed(dim.dim_param)
        for node in each.node:
            node.name = renamed(node.name)
            for names in (node.input, node.output):
                names[:] = [renamed(name) for name in names]
        for tensor in each.initializer:
            tensor.name = renamed(tensor.name)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)
