"""A recurrent cell over time: unrolled, or in a WHILE."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.cells import Cell, State
from convertkit.targets.tflite.lowering import copied
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor


def unrolled(
    b: Builder, cell: Cell, projected: Tensor, state: State, lengths: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Every step written out: outputs (time, batch, hidden) and the last state."""
    outputs = []
    steps = b.unpack(projected, 0)
    if lengths is not None and any(part is None for part in state):
        state = _zeros(b, cell, projected, state)
    for turn, gates in enumerate(steps):
        new = cell.step(b, gates, state)
        if lengths is None:
            state = new
            outputs.append(new[0])
        else:
            going = _going(b, lengths, b.constant(np.array(turn, lengths_dtype(lengths))))
            kept = [b.select(going, after, before) for after, before in zip(new, state, strict=True) if before]
            outputs.append(b.select(going, new[0], b.scalar(0.0, new[0])))
            state = tuple(kept)
    last = tuple(part for part in state if part is not None)
    return b.pack(outputs, 0), last


def while_loop(
    b: Builder, cell: Cell, projected: Tensor, state: State, lengths: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A WHILE whose state is the counter, the cell's state, the outputs so far and the projected inputs."""
    full = [copied(b, part) if part.constant is not None else part for part in _zeros(b, cell, projected, state)]
    steps = b.size_of(projected, 0)
    batch = b.size_of(projected, 1)
    shape = (projected.shape[0], projected.shape[1], cell.hidden)
    collected = b.fill(b.sizes([steps, batch, cell.hidden]), b.constant(np.array(0.0, np.float32)), shape)
    counter = copied(b, b.constant(np.array(0, np.int32)))
    outer = [counter, *full, collected, projected, *([] if lengths is None else [lengths])]
    inner = [Tensor(f"{b.prefix}/{tensor.name}", tensor.shape, tensor.dtype) for tensor in outer]
    condition = _condition(b, inner, len(full))
    body = _body(b, cell, inner, len(full), lengths is not None)
    results = b.while_(condition, body, [copied(b, t) if t.constant is not None else t for t in outer], inner)
    return results[1 + len(full)], results[1 : 1 + len(full)]


def lengths_dtype(lengths: Tensor) -> type[np.int32] | type[np.int64]:
    """NumPy's type of the lengths."""
    return np.int64 if lengths.dtype == "int64" else np.int32


def _zeros(b: Builder, cell: Cell, projected: Tensor, state: State) -> tuple[Tensor, ...]:
    """The start state with zeros written out."""
    count, batch = len(state), projected.shape[1]
    result = []
    for part in state:
        if part is not None:
            result.append(part)
        elif batch != DYNAMIC:
            result.append(b.constant(np.zeros((batch, cell.hidden), np.float32)))
        else:
            sizes = b.sizes([b.size_of(projected, 1), cell.hidden])
            result.append(b.fill(sizes, b.constant(np.array(0.0, np.float32)), (DYNAMIC, cell.hidden)))
    assert len(result) == count
    return tuple(result)


def _going(b: Builder, lengths: Tensor, turn: Tensor) -> Tensor:
    """Which sequences are longer than ``turn``, as a column."""
    return b.expand_dims(b.greater(lengths, turn), 1)


def _condition(b: Builder, inner: list[Tensor], parts: int) -> int:
    index = b.program.new_subgraph(f"{b.prefix}/condition")
    subgraph = b.program.subgraphs[index]
    subgraph.inputs = inner
    own = Builder(b.program, subgraph)
    own.origin = b.origin
    steps = own.reshape(own.size_of(inner[2 + parts], 0), ())
    if steps.constant is not None:
        steps = own.constant(steps.constant)
    subgraph.outputs = [own.less(inner[0], steps)]
    return index


def _body(b: Builder, cell: Cell, inner: list[Tensor], parts: int, has_lengths: bool) -> int:
    index = b.program.new_subgraph(f"{b.prefix}/step")
    subgraph = b.program.subgraphs[index]
    subgraph.inputs = inner
    own = Builder(b.program, subgraph)
    own.origin = b.origin
    counter, state, collected, projected = inner[0], inner[1 : 1 + parts], inner[1 + parts], inner[2 + parts]
    gates = own.gather(projected, counter, 0)
    new = cell.step(own, gates, tuple(state))
    row = new[0]
    if has_lengths:
        lengths = inner[3 + parts]
        going = _going(own, lengths, own.cast(counter, lengths.dtype))
        row = own.select(going, new[0], own.scalar(0.0, new[0]))
        new = tuple(own.select(going, after, before) for after, before in zip(new, state, strict=True))
    if collected.rank != 3:
        raise Unsupported("a sequence that is not (time, batch, features)")
    place = own.concatenation([own.reshape(counter, (1,)), own.ints([0]), own.ints([0])], 0)
    stacked = own.dynamic_update_slice(collected, own.expand_dims(row, 0), place)
    following = own.add(counter, own.constant(np.array(1, np.int32)))
    subgraph.outputs = [following, *new, stacked, *inner[2 + parts :]]
    if any(new.count(part) > 1 for part in new):
        subgraph.outputs = [following, *(copied(own, part) for part in new), stacked, *inner[2 + parts :]]
    return index
