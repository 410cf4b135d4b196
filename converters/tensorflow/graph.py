"""What a TensorFlow graph says about itself, read without TensorFlow and before anything runs.

Source: ``tensorflow/core/protobuf/{saved_model,meta_graph}.proto``,
``tensorflow/core/framework/{graph,node_def,function,attr_value}.proto``; the numbers are field numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from convertkit import wire
from convertkit.converters.tensorflow.sniff import SAVED_MODEL
from convertkit.errors import SourceError

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 20: "resource",
    21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
STANDARD_ERROR = "stderr"
INIT_OP = "__saved_model_init_op"
_MAX_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: ``inputs`` as the graph names them, ``functions`` that its attributes call.

    ``prints_to`` is the stream that the operator writes to where it has that attribute as plain text, else "?".
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    functions: tuple[str, ...]
    prints_to: str = STANDARD_ERROR


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One input or output of a signature; ``shape`` is None where even the rank is unknown."""

    key: str
    tensor: str
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Signature:
    """A named way to call the model."""

    key: str
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes by name, and the functions they may call."""

    nodes: Mapping[str, Node]
    functions: Mapping[str, tuple[Node, ...]]

    def everything(self) -> Iterator[Node]:
        """All nodes, those in functions included."""
        yield from self.nodes.values()
        for body in self.functions.values():
            yield from body

    def behind(self, tensors: Iterator[str]) -> Iterator[Node]:
        """All nodes that computing ``tensors`` runs, those in called functions included."""
        pending = [_node_name(each) for each in tensors]
        seen, called = set(), set[str]()
        while pending:
            name = pending.pop()
            if name in seen or name not in self.nodes:
                continue
            seen.add(name)
            node = self.nodes[name]
            pending += map(_node_name, node.inputs)
            yield node
            yield from self._in_functions(node.functions, called)

    def _in_functions(self, names: tuple[str, ...], called: set[str]) -> Iterator[Node]:
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in called:
                continue
            called.add(name)
            for node in self.functions.get(name, ()):
                pending += node.functions
                yield node


@dataclass(frozen=True, slots=True)
class SavedModel:
    """The first meta graph for serving."""

    graph: Graph
    signatures: tuple[Signature, ...]
    tags: tuple[str, ...]


def read_saved_model(folder: Path) -> SavedModel:
    """The description of the SavedModel in ``folder``; ``SourceError`` where it is broken."""
    data = _bytes(folder / SAVED_MODEL)
    try:
        metas = [_meta_graph(meta) for meta in wire.messages(data, 2)]
    except SourceError as error:
        raise SourceError(f"{folder / SAVED_MODEL}: {error}") from None
    if not metas:
        raise SourceError(f"{folder / SAVED_MODEL} holds no graph: it is truncated or no SavedModel")
    return next((meta for meta in metas if "serve" in meta.tags), metas[0])


def read_graph_def(path: Path) -> Graph:
    """The frozen graph at ``path``; ``SourceError`` where it is broken."""
    try:
        graph = _graph(_bytes(path))
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from None
    if not graph.nodes:
        raise SourceError(f"{path} holds no nodes")
    return graph


def _bytes(path: Path) -> memoryview:
    if not path.is_file():
        raise SourceError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    if path.stat().st_size > _MAX_BYTES:
        raise SourceError(f"{path} is larger than a protobuf can be")
    return memoryview(path.read_bytes())


def _meta_graph(meta: memoryview) -> SavedModel:
    tags = tuple(bytes(tag).decode(errors="replace") for tag in wire.messages(wire.message(meta, 1), 4))
    signatures = [_signature(key, value) for key, value in wire.mapping(meta, 5).items() if key != INIT_OP]
    return SavedModel(_graph(wire.message(meta, 2)), tuple(sorted(signatures, key=lambda each: each.key)), tags)


def _graph(data: memoryview) -> Graph:
    nodes = [_node(node) for node in wire.messages(data, 1)]
    functions = {}
    for function in wire.messages(wire.message(data, 2), 1):
        name = wire.text(wire.message(function, 1), 1)
        functions[name] = tuple(_node(node) for node in wire.messages(function, 3))
    return Graph({node.name: node for node in nodes}, functions)


def _node(data: memoryview) -> Node:
    inputs = tuple(bytes(each).decode(errors="replace") for each in wire.messages(data, 3))
    called: list[str] = []
    attributes = wire.mapping(data, 5)
    for value in attributes.values():
        called += [wire.text(each, 1) for each in wire.messages(value, 10)]
        called += [wire.text(each, 1) for each in wire.messages(wire.message(value, 1), 9)]
    stream = _plain_text(attributes["output_stream"]) if "output_stream" in attributes else STANDARD_ERROR
    return Node(wire.text(data, 1), wire.text(data, 2), inputs, tuple(called), stream)


def _plain_text(value: memoryview) -> str:
    """An attribute's text; "?" where it is, or is also, something else, such as what a caller fills in."""
    return wire.text(value, 2) if [number for number, _, _ in wire.fields(value)] == [2] else "?"


def _signature(key: str, data: memoryview) -> Signature:
    ends = []
    for number in (1, 2):
        found = [_endpoint(name, value) for name, value in wire.mapping(data, number).items()]
        ends.append(tuple(sorted(found, key=lambda each: each.key)))
    return Signature(key, *ends)


def _endpoint(key: str, data: memoryview) -> Endpoint:
    dtype = wire.integer(data, 2)
    shape = wire.message(data, 3)
    sizes = tuple(wire.integer(dim, 1) for dim in wire.messages(shape, 2))
    unknown = bool(wire.integer(shape, 3))
    return Endpoint(key, wire.text(data, 1), DTYPES.get(dtype, f"type {dtype}"), None if unknown else sizes)


def _node_name(tensor: str) -> str:
    """The node of a tensor name such as ``x:0`` or a control input such as ``^x``."""
    return tensor.removeprefix("^").partition(":")[0]
