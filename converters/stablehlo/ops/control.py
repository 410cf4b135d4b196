"""Control flow: while, if, case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder, assembled, parts
from convertkit.converters.stablehlo.mlir import text
from convertkit.converters.stablehlo.recognise.turns import direction
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import BOOL, I32, I64, Complex, Operand, Tensor, constant

control = Handlers()


def while_loop(b: Builder, op: hlo.WhileOp, *operands: Operand) -> tuple[Operand, ...]:
    """ONNX ``Loop``; the condition is computed once before and once after each pass.

    What no pass changes is read from outside.  A counter that only runs to a known limit is the
    loop's own, and a buffer that every pass fills one row of is a scan output.
    """
    condition, body = (region.blocks[0] for region in op.regions)
    count = counted(b, condition, body, operands)
    kept = {place for place, value in enumerate(_yielded(body)) if value == body.arguments[place]}
    varying = [place for place in range(len(operands)) if place not in kept and place != _place(count)]
    template = [isinstance(operands[place], Complex) for place in varying]
    starts = [b.full(each) for each in parts([operands[place] for place in varying])]
    inner = b.child()
    turn, going = inner.fresh((), I64, "pass"), inner.fresh((), BOOL, "going")
    state = [inner.fresh(each.shape, each.dtype, "state") for each in starts]
    seen = dict(zip(varying, assembled(template, state), strict=True))
    if count is not None:
        seen[count.place] = count.number(inner, turn)
    results = b.regions.inline(inner, body, [seen.get(place, each) for place, each in enumerate(operands)])
    outputs = parts([results[place] for place in varying])
    collects = count if _collects(body, state, free_rows=b.regions.free_rows) else None
    values = [
        Carried(start, seen_, output, *(_NO_ROW if collects is None else _row(inner, seen_, output, turn, collects)))
        for start, seen_, output in zip(starts, state, outputs, strict=True)
    ]
    if count is None:
        first = _single(b.regions.inline(b, condition, operands))
        after = [results[place] if place in varying else each for place, each in enumerate(operands)]
        again, trips = _single(b.regions.inline(inner, condition, after)), None
    else:
        first, again, trips = constant(np.array(True)), going, constant(np.array(count.trips, np.int64))
    made = _emitted(b, inner, [trips, b.full(first)], [turn, going], again, values)
    finals = dict(zip(varying, assembled(template, made), strict=True))
    if count is not None:
        finals[count.place] = count.final()
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

    Targets may need to know the size of rows, so those of a free size are collected where a recurrent operator may be.
    """
    names = {each.operation.name for each in body.operations}
    gated = "stablehlo.dot_general" in names and not names.isdisjoint(("stablehlo.tanh", "stablehlo.maximum"))
    known = None not in [size for each in state for size in each.shape]
    return known or (gated and free_rows)


def _emitted(
    b: Builder,
    inner: Builder,
    bounds: Sequence[Tensor | None],
    counters: Sequence[Tensor],
    again: Tensor,
    values: Sequence[Carried],
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
    order = sorted(range(len(values)), key=lambda place: values[place].row is not None)
    by_place = {place: next(made) for place in order}
    return [b.reverse(by_place[place], [0]) if each.backward else by_place[place] for place, each in enumerate(values)]


@dataclass(frozen=True, slots=True)
class Count:
    """A loop that runs ``trips`` times while the state at ``place`` counts up from ``first`` by 1."""

    place: int
    first: int
    trips: int
    dtype: ir.DataType

    def number(self, b: Builder, turn: Tensor) -> Tensor:
        """The state within the pass with this number."""
        moved = turn if self.first == 0 else b.add(turn, self.first)
        return b.counter(moved, self.dtype, self.first, self.first + self.trips - 1)

    def final(self) -> Tensor:
        """The state after the last pass."""
        return constant(np.array(self.first + self.trips, self.dtype.numpy()))


def counted(b: Builder, condition: Any, body: Any, operands: Sequence[Operand]) -> Count | None:
    """``while i < limit`` with ``i = i + 1``, both ends known; None for any other loop."""
    test = _yielded(condition)[0].owner
    if not hasattr(test, "opview") or test.name != "stablehlo.compare":
        return None
    arguments = list(condition.arguments)
    if text(test.opview.comparison_direction) != "LT" or test.operands[0] not in arguments:
        return None
    place = arguments.index(test.operands[0])
    start = operands[place]
    step = _yielded(body)[place].owner
    if not isinstance(start, Tensor) or start.dtype not in (I32, I64) or start.scalar is None or start.rank:
        return None
    if not hasattr(step, "opview") or step.name != "stablehlo.add" or step.operands[0] != body.arguments[place]:
        return None
    by, limit = _known(b, step.operands[1], body, operands), _known(b, test.operands[1], condition, operands)
    if by != 1 or limit is None or limit <= start.scalar:
        return None
    return Count(place, int(start.scalar), int(limit - start.scalar), start.dtype)


def _known(b: Builder, value: Any, block: Any, operands: Sequence[Operand]) -> float | None:
    """The number that a scalar of a block is in every pass, None where it is none."""
    arguments = list(block.arguments)
    if value in arguments:
        place = arguments.index(value)
        # The limit may be handed from pass to pass unchanged.
        tensor: Operand | None = operands[place] if _unchanged(block, place) else None
    elif value.owner in [op.operation for op in block.operations] and value.owner.name != "stablehlo.constant":
        return None
    else:
        tensor = b.regions.value(b, block, operands, value)
    return tensor.scalar if isinstance(tensor, Tensor) and not tensor.rank else None


def _unchanged(block: Any, place: int) -> bool:
    """Whether the loop that ``block`` belongs to keeps the state at ``place``."""
    body = block.owner.regions[1].blocks[0]
    return bool(_yielded(body)[place] == body.arguments[place])


def _yielded(block: Any) -> list[Any]:
    return list(list(block.operations)[-1].operation.operands)


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
    place = splice.first.core if isinstance(splice.first.core, ir.Value) else None
    backward = direction(place, turn.core, count.trips)
    assert isinstance(state.core, ir.Value)
    others = [use.node for use in state.core.uses() if use.node not in splice.nodes]
    result = output.core
    assert isinstance(result, ir.Value)
    if backward is None or count.first != 0 or state.shape[0] != count.trips or others or result.uses():
        return _NO_ROW
    for node in splice.nodes:
        b.nodes.remove(node)
        node.resize_inputs(0)
    return b.squeeze(splice.update, [0]), backward


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
