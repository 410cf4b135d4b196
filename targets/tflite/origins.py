"""The nodes of the source's ONNX that results of a file come from, as a note that takes few bytes.

A note has ``places``, lines of source code in the order in which they are first named, each as the number of characters
that it shares with the one before and the rest; and ``origins``: for each subgraph the results of all operators, in
order, as the node's name, a blank and the number of its place, nothing where there is none.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Note = dict[str, Any]


def folded(graphs: Iterable[Iterable[str]]) -> Note:
    """The note of origins, each ``NODE (PLACE)`` or ``NODE``, empty where a result has none."""
    numbers: dict[str, int] = {}
    origins = [[_named(origin, numbers) for origin in graph] for graph in graphs]
    shortened, before = [], ""
    for place in numbers:
        shared = next((at for at, pair in enumerate(zip(before, place, strict=False)) if pair[0] != pair[1]),
                      min(len(before), len(place)))  # fmt: skip
        shortened.append([shared, place[shared:]])
        before = place
    return {"places": shortened, "origins": origins}


def unfolded(note: Mapping[str, Any]) -> list[list[str]]:
    """The origins that :func:`folded` was given."""
    places: list[str] = []
    for shared, rest in note["places"]:
        places.append((places[-1] if places else "")[:shared] + rest)
    return [[_whole(told, places) for told in graph] for graph in note["origins"]]


def origins_of(model: Any, key: str) -> dict[str, str]:
    """By name the origins of a ``schema.ModelT``'s tensors.

    Nothing where its metadata has no such note, or one of other operators: another tool has changed the graph since.
    """
    for entry in model.metadata or ():
        if bytes(entry.name) == key.encode():
            graphs = unfolded(json.loads(bytes(model.buffers[entry.buffer].data)))
            names = [_results(graph) for graph in model.subgraphs]
            if [len(each) for each in names] != [len(each) for each in graphs]:
                return {}
            pairs = zip(itertools.chain(*names), itertools.chain(*graphs), strict=True)
            return {name: origin for name, origin in pairs if origin}
    return {}


def _results(graph: Any) -> list[str]:
    """The names of what operators compute, in their order."""
    indices = (index for operator in graph.operators for index in operator.outputs)
    return [bytes(graph.tensors[index].name).decode() for index in indices]


def _named(origin: str, numbers: dict[str, int]) -> str:
    node, opened, place = origin.partition(" (")
    if not opened or not place.endswith(")"):
        return f"{origin} " if origin else ""
    return f"{node} {numbers.setdefault(place.removesuffix(')'), len(numbers))}"


def _whole(told: str, places: Sequence[str]) -> str:
    node, _, number = told.rpartition(" ")
    return f"{node} ({places[int(number)]})" if number else node
