"""Steps of a recurrence, written out or as a WHILE.

Inside, a state is (1, batch, hidden), as a step of a sequence (time, batch, features) is: nothing is reshaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.loops import WRITTEN_OUT
from convertkit.targets.tflite.handlers.elementary import like
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

Columns = Callable[[int, int], Tensor]
"""Some columns of one step's input products, (1, batch, columns): from the first to before the last."""

Step = Callable[[Builder, Columns, Sequence[Tensor]], tuple[Tensor, ...]]
"""From one step's input products and the state to the next state, whose first part is the output."""


def run_steps(
    b: Builder, inner: Tensor, states: Sequence[Tensor], lengths: Tensor | None, step: Step, weight_bytes: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (time, batch, hidden) and the last states (1, batch, hidden), from states (batch, hidden).

    Behind a sequence's length outputs are zero.  ``weight_bytes`` are those that a step reads.
    """
    steps = inner.shape[0]
    states = tuple(b.expand_dims(state, 0) for state in states)
    if steps == DYNAMIC:
        return _looped(b, inner, states, lengths, step, None, 1)
    together = b.program.loops.together(steps, weight_bytes, b.program.recurrences)
    if together == WRITTEN_OUT:
        outputs, state = _written_out(b, inner, states, [_time(b, time) for time in range(steps)], lengths, step)
        return b.concatenation(outputs, 0), state
    whole = steps - steps % together
    looped, state = _looped(b, inner, states, lengths, step, whole, together)
    if whole == steps:
        return looped, state
    rest = cut(b, inner, [slice(whole, steps), slice(None), slice(None)])
    times = [_time(b, time) for time in range(whole, steps)]
    outputs, state = _written_out(b, rest, state, times, lengths, step)
    return b.concatenation([looped, *outputs], 0), state


def zeros_for_each(b: Builder, x: Tensor, size: int) -> Tensor:
    """Zeros (batch, size) for a sequence ``x`` (time, batch, features).

    A batch known at run time only is read off ``x`` without its numbers, which may be NaN: nothing is less
    than itself.  All shapes follow from the input's, so that the runtime plans memory and delegates ahead.
    """
    batch = x.shape[1]
    if batch != DYNAMIC:
        return b.constant(np.zeros((batch, size), np.float32))
    first = b.reshape(b.slice(x, (0, 0, 0), (1, DYNAMIC, 1)), (DYNAMIC, 1))
    return b.add(b.cast(b.less(first, first), "float32"), b.constant(np.zeros((1, size), np.float32)))


def _written_out(
    b: Builder, inner: Tensor, state: tuple[Tensor, ...], times: list[Tensor], lengths: Tensor | None, step: Step
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """One step after the other; ``times`` are their numbers."""
    outputs = []
    for place, time in enumerate(times):
        output, state = _advanced(b, partial(_columns, b, inner, place), state, time, lengths, step)
        outputs.append(output)
    return outputs, state


def _columns(b: Builder, inner: Tensor, place: int, first: int, last: int) -> Tensor:
    return cut(b, inner, [slice(place, place + 1), slice(None), slice(first, last)])


def _time(b: Builder, time: int) -> Tensor:
    return b.constant(np.array(time, np.int32))


def _advanced(
    b: Builder, xs: Columns, state: tuple[Tensor, ...], time: Tensor, lengths: Tensor | None, step: Step
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step; sequences that have ended keep their state and give zero."""
    result = step(b, xs, state)
    if lengths is None:
        return result[0], result
    now = b.reshape(time, (1, 1, 1))
    if lengths.shape[0] != DYNAMIC:
        now = b.broadcast_to(now, (1, lengths.shape[0], 1))
    running = b.less(now, _column(b, lengths))
    kept = tuple(b.select(running, new, old) for new, old in zip(result, state, strict=True))
    return b.select(running, result[0], like(b, result[0], 0)), kept


def _column(b: Builder, lengths: Tensor) -> Tensor:
    return b.reshape(b.cast(lengths, "int32"), (1, lengths.shape[0], 1))


def _looped(
    b: Builder,
    inner: Tensor,
    states: Sequence[Tensor],
    lengths: Tensor | None,
    step: Step,
    steps: int | None,
    together: int,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A WHILE over step number, states, all outputs so far, and input products; ``steps`` fill its turns.

    A turn is so many steps ``together``; where only the runtime knows how many there are in all (None), it is one.
    """
    outputs = _no_outputs(b, inner, steps, states[0].shape[-1])
    initial = [_time(b, 0), *states, outputs, inner, *([] if lengths is None else [b.cast(lengths, "int32")])]
    held = initial
    condition, body = (_fresh_builder(b, name) for name in ("condition", "body"))
    inputs = [_fresh(tensor) for tensor in held]
    condition.builder.subgraph.inputs = inputs
    last = (
        _time(b, steps)
        if steps
        else condition.builder.reshape(condition.builder.size_of(inputs[2 + len(states)], 0), ())
    )
    condition.builder.subgraph.outputs = [condition.builder.less(inputs[0], last)]
    _write_body(body.builder, [_fresh(tensor) for tensor in held], lengths is not None, together, step)
    results = b.while_(condition.index, body.index, held, held)
    return results[1 + len(states)], tuple(results[1 : 1 + len(states)])


def _no_outputs(b: Builder, inner: Tensor, steps: int | None, hidden: int) -> Tensor:
    """Zeros (steps, batch, hidden)."""
    if steps is None:
        part = cut(b, inner, [slice(None), slice(None), slice(0, hidden)])
        return b.cast(b.less(part, part), "float32")
    batch = inner.shape[1]
    if batch != DYNAMIC:
        return b.constant(np.zeros((steps, batch, hidden), np.float32))
    row = b.reshape(zeros_for_each(b, inner, hidden), (1, DYNAMIC, hidden))
    return b.add(row, b.constant(np.zeros((steps, 1, 1), np.float32)))


class _Inner:
    """A subgraph under construction and its index."""

    def __init__(self, builder: Builder, index: int) -> None:
        self.builder = builder
        self.index = index


def _fresh_builder(b: Builder, name: str) -> _Inner:
    index = b.program.new_subgraph(f"{b.prefix}/{name}")
    builder = Builder(b.program, b.program.subgraphs[index])
    builder.prefix, builder.origin = f"{b.prefix}/{name}", b.origin
    return _Inner(builder, index)


def _fresh(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.shape, tensor.dtype)


def _write_body(b: Builder, inputs: list[Tensor], with_lengths: bool, together: int, step: Step) -> None:
    """So many steps ``together`` over step number, states, outputs, input products and lengths, where there are any."""
    b.subgraph.inputs = inputs
    time, *state, outputs, inner = inputs[:-1] if with_lengths else inputs
    lengths = inputs[-1] if with_lengths else None
    column = b.reshape(time, (1,))
    places = b.add(column, b.ints(range(together)))
    times = [cut(b, places, [slice(place, place + 1)]) for place in range(together)] if with_lengths else []
    chunk = b.gather(inner, places, 0)
    results, after = _written_out(b, chunk, tuple(state), times or [time] * together, lengths, step)
    start = b.concatenation([column, b.ints([0, 0])], 0)
    written = b.dynamic_update_slice(outputs, b.concatenation(results, 0), start)
    b.subgraph.outputs = [
        b.add(time, like(b, time, together)),
        *after,
        written,
        inner,
        *([] if lengths is None else [lengths]),
    ]
