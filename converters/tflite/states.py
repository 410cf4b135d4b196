"""Variables that change from call to call, as inputs and outputs of the main graph.

before:  CALL_ONCE sets v = 0;  r = READ_VARIABLE(v);  y = ADD(x, r);  ASSIGN_VARIABLE(v, y)
after:   state.v = r is an input that begins at 0;  y = ADD(x, r);  next_state.v = y is an output

The file is edited in place, so that LiteRT executes what is read here: operators leave the graph's list, and the
lists of its inputs and outputs are written anew behind the file's end.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array
from convertkit.converters.tflite import flatbuffer, variables
from convertkit.converters.tflite.model import Operator, Signature, Subgraph, TensorInfo, TFLiteModel, graphs_of

_WORD = struct.Struct("<I")
_LARGEST = 1 << 31
"""Bytes of a file whose places fit an offset of a FlatBuffer."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A file whose variables are inputs and outputs: ``data`` holds it, ``start`` what the inputs begin with."""

    model: TFLiteModel
    signature: Signature
    data: bytes
    start: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class _Walked:
    """The main graph without variables: ``read`` and ``held`` are tensors by variable, before and after a call."""

    graph: Subgraph
    kept: tuple[int, ...]
    same: Mapping[int, int]
    read: Mapping[str, int]
    held: Mapping[str, int]


def shown(data: bytes, model: TFLiteModel, signature: Signature) -> Shown | None:
    """The file with its state in the interface; None where it has none, or where this would not say what it does."""
    names = _changing(model)
    if not names or signature.subgraph != 0 or len(data) >= _LARGEST:
        return None
    walked = _walked(model.subgraphs[0], names)
    start = variables.starts(model)
    if walked is None or not all(_lasts(model.subgraphs[0], walked, name, start) for name in walked.read):
        return None
    states = {name: _public(name) for name in sorted(walked.read)}
    graph = _with_ports(walked, tuple(states))
    edited = _edited(data, graph, walked.kept)
    if edited is None or not _same_graph(edited, graph):
        return None
    inputs = tuple((f"{STATE_PREFIX}{public}", walked.read[name]) for name, public in states.items())
    outputs = tuple((f"{NEXT_STATE_PREFIX}{public}", walked.held[name]) for name, public in states.items())
    given = tuple((name, walked.same.get(index, index)) for name, index in signature.outputs)
    return Shown(
        replace(model, subgraphs=(graph, *model.subgraphs[1:])),
        Signature("", (*signature.inputs, *inputs), (*given, *outputs), 0),
        edited,
        {f"{STATE_PREFIX}{public}": _required(start[name].data) for name, public in states.items()},
    )


def _public(name: str) -> str:
    return name.removeprefix("/")


def _required(data: Array | None) -> Array:
    assert data is not None  # starts() holds constants alone
    return data


def _changing(model: TFLiteModel) -> frozenset[str]:
    """Variables that the main graph assigns and no other one touches, those aside that CALL_ONCE runs."""
    once = variables.initial_graphs(model)
    assigned = set(_touched(model.subgraphs[0], {"ASSIGN_VARIABLE"}))
    others = [graph for place, graph in enumerate(model.subgraphs) if place and place not in once]
    elsewhere = {name for graph in others for name in _touched(graph, {"ASSIGN_VARIABLE", "READ_VARIABLE"})}
    return frozenset(assigned - elsewhere)


def _touched(graph: Subgraph, builtins: Collection[str]) -> Iterator[str]:
    handles = variables.handles(graph)
    for op in graph.operators:
        if op.builtin in builtins and op.inputs and op.inputs[0] in handles:
            yield handles[op.inputs[0]]


def _walked(graph: Subgraph, names: Collection[str]) -> _Walked | None:
    """The graph without the operators of ``names``; None where a handle goes elsewhere."""
    handles = {index: name for index, name in variables.handles(graph).items() if name in names}
    same, read, held = dict[int, int](), dict[str, int](), dict[str, int]()
    kept, operators = list[int](), list[Operator]()
    for place, op in enumerate(graph.operators):
        name = handles.get(op.inputs[0]) if op.inputs else None
        if name is not None and not _complete(op):
            return None
        if op.builtin == "VAR_HANDLE" and set(op.outputs) <= set(handles):
            continue
        if op.builtin == "READ_VARIABLE" and name is not None:
            if name in held:
                same[op.outputs[0]] = held[name]
            else:
                read[name] = held[name] = op.outputs[0]
        elif op.builtin == "ASSIGN_VARIABLE" and name is not None:
            held[name] = same.get(op.inputs[1], op.inputs[1])
        elif set(op.inputs) & set(handles):
            return None
        else:
            kept.append(place)
            operators.append(replace(op, inputs=tuple(same.get(index, index) for index in op.inputs)))
    outputs = tuple(same.get(index, index) for index in graph.outputs)
    return _Walked(replace(graph, operators=tuple(operators), outputs=outputs), tuple(kept), same, read, held)


def _complete(op: Operator) -> bool:
    """Whether the operator of a variable has the tensors that it needs."""
    return -1 not in (*op.inputs, *op.outputs) and (len(op.inputs), len(op.outputs)) in ((1, 1), (2, 0))


def _lasts(graph: Subgraph, walked: _Walked, name: str, start: Mapping[str, TensorInfo]) -> bool:
    """Whether a call leaves in the variable what the next one can read, and what the first one reads is known."""
    before, after = graph.tensors[walked.read[name]], graph.tensors[walked.held[name]]
    first = start.get(name)
    return first is not None and _alike(before, after) and _alike(before, first)


def _alike(one: TensorInfo, other: TensorInfo) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.quantization is None or other.quantization is None:
        return one.quantization is other.quantization
    pairs = (
        (one.quantization.scale, other.quantization.scale),
        (one.quantization.zero_point, other.quantization.zero_point),
    )
    return all(np.array_equal(mine, its) for mine, its in pairs)


def _with_ports(walked: _Walked, names: Sequence[str]) -> Subgraph:
    """The graph whose inputs and outputs hold the state behind its own, no tensor twice."""
    inputs = (*walked.graph.inputs, *(walked.read[name] for name in names))
    outputs = dict.fromkeys((*walked.graph.outputs, *(walked.held[name] for name in names)))
    return replace(walked.graph, inputs=inputs, outputs=tuple(outputs))


def _edited(data: bytes, graph: Subgraph, kept: Sequence[int]) -> bytes | None:
    """The file with this main graph, and without signatures; None where it leaves out the lists to be changed."""
    made = bytearray(data)
    root = flatbuffer.root(memoryview(data))
    main = root.tables(2)[0]
    if not (main.place(1) and main.place(2) and main.place(3)):
        return None
    tables = main.tables(3)
    start, _ = main.vector(3)
    _WORD.pack_into(made, start - 4, len(kept))
    for place, (before, op) in enumerate(zip(kept, graph.operators, strict=True)):
        _WORD.pack_into(made, start + 4 * place, tables[before].start - (start + 4 * place))
        if op.inputs:
            at, count = tables[before].vector(1)
            struct.pack_into(f"<{count}i", made, at, *op.inputs)
    if root.place(7):
        _WORD.pack_into(made, root.vector(7)[0] - 4, 0)
    for slot, indices in ((1, graph.inputs), (2, graph.outputs)):
        made += bytes(-len(made) % 4)
        _WORD.pack_into(made, main.place(slot), len(made) - main.place(slot))
        made += struct.pack(f"<I{len(indices)}i", len(indices), *indices)
    return bytes(made)


def _same_graph(data: bytes, wanted: Subgraph) -> bool:
    """Whether the edited file says exactly ``wanted``: a list that two tables share would say more."""
    found = graphs_of(flatbuffer.root(memoryview(data)))[0]
    return (found.operators, found.inputs, found.outputs) == (wanted.operators, wanted.inputs, wanted.outputs)
