"""Control flow: while, if, case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder, assembled, parts
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import BOOL, I64, Complex, Operand, Tensor, constant

control = Handlers()


def while_loop(b: Builder, op: hlo.WhileOp, *operands: Operand) -> tuple[Operand, ...]:
    """ONNX ``Loop``: the condition is computed once before and once after each pass."""
    condition, body = (region.blocks[0] for region in op.regions)
    template = [isinstance(each, Complex) for each in operands]
    starts = [b.full(each) for each in parts(operands)]
    first = _single(b.regions.inline(b, condition, operands))
    inner = b.child()
    counter = inner.fresh((), I64, "pass")
    going = inner.fresh((), BOOL, "going")
    state = [inner.fresh(each.shape, each.dtype, "state") for each in starts]
    results = b.regions.inline(inner, body, assembled(template, state))
    again = _single(b.regions.inline(inner, condition, results))
    outputs = parts(results)
    graph = inner.graph("body", [counter, going, *state], [again, *outputs])
    outs = [Out(each.shape, each.dtype) for each in outputs]
    finals = b.raw("Loop", [None, b.full(first), *starts], outs, {"body": graph})
    return tuple(assembled(template, finals))


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
