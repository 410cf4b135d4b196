"""Control flow: while, if, case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder, Turn, assembled, parts
from convertkit.converters.stablehlo.counts import Count, counted, has_products, yielded
from convertkit.converters.stablehlo.recognise.turns import direction
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import BOOL, I64, Complex, Operand, Tensor, constant

control = Handlers()
LOOP = "loop of the module"
"""Key of a ``Loop``'s analysis data: the operator that it was."""


def while_loop(b: Builder, op: hlo.WhileOp, *operands: Operand) -> tuple[Operand, ...]:
    """ONNX ``Loop``; the condition is computed once before and once after each pass.

    What no pass changes is read from outside.  A counter that only runs to a known limit is the
    loop's own, and a buffer that every pass fills one row of is a scan output.
    """
    condition, body = (region.blocks[0] for region in op.regions)
    count = counted(b, op.operation, operands)
    kept = {place for place, value in enumerate(yielded(body)) if value == body.arguments[place]}
    varying = [place for place in range(len(operands)) if place not in kept and place != _place(count)]
    template = [isinstance(operands[place], Complex) for place in varying]
    starts = [b.full(each) for each in parts([operands[place] for place in varying])]
    inner = b.child()
    turn, going = inner.fresh((), I64, "pass"), inner.fresh((), BOOL, "going")
    state = [inner.fresh(each.shape, each.dtype, "state") for each in starts]
    seen = dict(zip(varying, assembled(template, state), strict=True))
    if count is not None:
        seen[count.place] = count.number(inner, turn)
    if count is not None and count.known is None:
        b.regions.turns[body.arguments[count.place]] = Turn(count.rows, turn, count.trips)
    results = b.regions.inline(inner, body, [seen.get(place, each) for place, each in enumerate(operands)])
    outputs = parts([results[place] for place in varying])
    collects = count if _collects(body, state, free_rows=b.regions.collects(op.operation)) else None
    values = [
        Carried(start, seen_, output, *(_NO_ROW if collects is None else _row(inner, seen_, output, turn, collects)))
        for start, seen_, output in zip(starts, state, outputs, strict=True)
    ]
    if count is None:
        first = _single(b.regions.inline(b, condition, operands))
        after = [results[place] if place in varying else each for place, each in enumerate(operands)]
        again, trips = _single(b.regions.inline(inner, condition, after)), None
    else:
        first, again, trips = constant(np.array(True)), going, count.trips
    made = _emitted(b, inner, [trips, b.full(first)], [turn, going], again, values, op.operation)
    finals = dict(zip(varying, assembled(template, made), strict=True))
    if count is not None:
        finals[count.place] = count.final(b)
    return tuple(finals.get(place, each) for place, each in enumerate(operands))


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that passes change: where it starts, what a pass reads and gives; ``row`` where it only collects rows."""

    start: Tensor
    state: Tensor
    output: Tensor
    row: Tensor | None
    backward: bool = False
    """Whether passes fill rows from the last one on."""


def _collects(body: Any, state: Sequence[Tensor], *, free_rows: bool) -> bool:
    """Whether rows may become a scan output.

    Targets may need to know the size of rows, so those of a dynamic size are collected where a recurrent operator may
    be.
    """
    known = None not in [size for each in state for size in each.shape]
    return known or (has_products(body) and free_rows)


def _emitted(
    b: Builder,
    inner: Builder,
    bounds: Sequence[Tensor | None],
    counters: Sequence[Tensor],
    again: Tensor,
    values: Sequence[Carried],
    loop: Any,
) -> list[Tensor]:
    """The ``Loop`` and what the values are after it; ``bounds`` are the number of passes and the first condition."""
    carried = [each for each in values if each.row is None]
    rows = [each.row for each in values if each.row is not None]
    graph = inner.graph(
        "body", [*counters, *(each.state for each in carried)], [again, *(each.output for each in carried), *rows]
    )
    outs = [Out(each.output.shape, each.output.dtype) for each in carried]
    outs += [Out((each.state.shape[0], *each.row.shape), each.row.dtype) for each in values if each.row is not None]
    made = iter(b.raw("Loop", [*bounds, *(each.start for each in carried)], outs, {"body": graph}))
    b.nodes[-1].meta[LOOP] = loop
    order = sorted(range(len(values)), key=lambda place: values[place].row is not None)
    by_place = {place: next(made) for place in order}
    return [b.reverse(by_place[place], [0]) if each.backward else by_place[place] for place, each in enumerate(values)]


def _place(count: Count | None) -> int | None:
    return None if count is None else count.place


_NO_ROW: tuple[None, bool] = (None, False)


def _row(b: Builder, state: Tensor, output: Tensor, turn: Tensor, count: Count) -> tuple[Tensor | None, bool]:
    """What each pass writes into its row of a buffer that nothing else reads, and whether from the last one on.

    None for any other state.
    """
    splice = b.splice_of(output)
    if splice is None or splice.source.core is not state.core or splice.axis != 0 or splice.update.shape[0] != 1:
        return _NO_ROW
    assert isinstance(turn.core, ir.Value)
    backward = _direction(b, splice.first, turn.core, count, state.shape[0])
    assert isinstance(state.core, ir.Value)
    others = [use.node for use in state.core.uses() if use.node not in splice.nodes]
    result = output.core
    assert isinstance(result, ir.Value)
    if backward is None or count.first != 0 or others or result.uses():
        return _NO_ROW
    for node in splice.nodes:
        b.nodes.remove(node)
        node.resize_inputs(0)
    return b.squeeze(splice.update, [0]), backward


def _direction(b: Builder, index: Tensor, turn: ir.Value, count: Count, rows: int | None) -> bool | None:
    """Whether passes fill all of so many rows from the last one on; None where an index is any other."""
    trips = count.known
    if trips is None:
        first, backward = b.turn_of(index) or (None, False)
        return backward if first is turn else None
    place = index.core if isinstance(index.core, ir.Value) else None
    return direction(place, turn, trips) if rows == trips else None


def _single(results: Sequence[Operand]) -> Tensor:
    (result,) = results
    assert isinstance(result, Tensor)
    return result


@control.translates
def real_while(b: Builder, op: hlo.WhileOp, *operands: Operand) -> tuple[Operand, ...]:
    return while_loop(b, op, *operands)


@control.complex
def complex_while(b: Builder, op: hlo.WhileOp, *operands: Operand) -> tuple[Operand, ...]:
    return while_loop(b, op, *operands)


@control.translates
def real_if(b: Builder, op: hlo.IfOp, condition: Tensor) -> tuple[Operand, ...]:
    return branch(b, condition, *(_of(region) for region in op.regions))


@control.complex
def complex_if(b: Builder, op: hlo.IfOp, condition: Tensor) -> tuple[Operand, ...]:
    return branch(b, condition, *(_of(region) for region in op.regions))


@control.translates
def real_case(b: Builder, op: hlo.CaseOp, index: Tensor) -> tuple[Operand, ...]:
    return choose(b, index, list(op.regions), 0)


@control.complex
def complex_case(b: Builder, op: hlo.CaseOp, index: Tensor) -> tuple[Operand, ...]:
    return choose(b, index, list(op.regions), 0)


Body = Callable[[Builder], tuple[Operand, ...]]


def _of(region: Any) -> Body:
    return lambda inner: inner.regions.inline(inner, region.blocks[0], ())


def choose(b: Builder, index: Tensor, regions: Sequence[Any], number: int) -> tuple[Operand, ...]:
    """A chain of ``If``; an index out of range takes the last branch."""
    if number == len(regions) - 1:
        return b.regions.inline(b, regions[number].blocks[0], ())
    here = b.equal(index, constant(np.array(number, np.int32)))
    return branch(b, here, _of(regions[number]), lambda inner: choose(inner, index, regions, number + 1))


def branch(b: Builder, condition: Tensor, then: Body, otherwise: Body) -> tuple[Operand, ...]:
    """ONNX ``If``."""
    graphs, template, outs = [], [], []
    for name, body in (("then", then), ("else", otherwise)):
        inner = b.child()
        results = body(inner)
        template = [isinstance(each, Complex) for each in results]
        flat = parts(results)
        outs = [Out(each.shape, each.dtype) for each in flat]
        graphs.append(inner.graph(name, [], flat))
    values = b.raw("If", [b.full(condition)], outs, {"then_branch": graphs[0], "else_branch": graphs[1]})
    return tuple(assembled(template, values))
