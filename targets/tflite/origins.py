"""The nodes of the source's ONNX that results of a file come from, as a note that takes few bytes.

A note has ``places``, lines of source code in the order in which they are first named, each as the number of characters
that it shares with the one before and the rest; and ``origins``: for each subgraph the results of all operators, in
order, as the node's name, a blank and the number of its place, nothing where there is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """By name the origins of a ``schema.ModelT``'s tensors; nothing where its metadata has no such note."""
    for entry in model.metadata or ():
        if bytes(entry.name) == key.encode():
            graphs = unfolded(json.loads(bytes(model.buffers[entry.buffer].data)))
            told = zip(model.subgraphs, graphs, strict=True)
            return {name: origin for graph, origins in told for name, origin in _by_name(graph, origins) if origin}
    return {}


def _by_name(graph: Any, origins: Sequence[str]) -> Iterator[tuple[str, str]]:
    results = (index for operator in graph.operators for index in operator.outputs)
    yield from ((bytes(graph.tensors[index].name).decode(), each) for index, each in zip(results, origins, strict=True))


def _named(origin: str, numbers: dict[str, int]) -> str:
    node, opened, place = origin.partition(" (")
    if not opened or not place.endswith(")"):
        return f"{origin} " if origin else ""
    return f"{node} {numbers.setdefault(place.removesuffix(')'), len(numbers))}"


def _whole(told: str, places: Sequence[str]) -> str:
    node, _, number = told.rpartition(" ")
    return f"{node} ({places[int(number)]})" if number else node
