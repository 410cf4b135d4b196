"""Constants, composites and operators that only tie values together."""

from __future__ import annotations

from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import constant_of, text
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import Operand, Tensor

basics = Handlers()


@basics.pointwise
def constant(b: Builder, op: hlo.ConstantOp) -> Operand:
    return constant_of(op)


@basics.complex
def complex_constant(b: Builder, op: hlo.ConstantOp) -> Operand:
    return constant_of(op)


@basics.translates
def optimization_barrier(b: Builder, op: hlo.OptimizationBarrierOp, *operands: Operand) -> tuple[Operand, ...]:
    return operands


@basics.complex
def complex_barrier(b: Builder, op: hlo.OptimizationBarrierOp, *operands: Operand) -> tuple[Operand, ...]:
    return operands


@basics.translates
def composite(b: Builder, op: hlo.CompositeOp, *operands: Operand) -> tuple[Operand, ...]:
    """The decomposition that the module carries is what the composite means."""
    return b.regions.inline(b, b.regions.function(text(op.attributes["decomposition"])), operands)


@basics.complex
def complex_composite(b: Builder, op: hlo.CompositeOp, *operands: Operand) -> tuple[Operand, ...]:
    return b.regions.inline(b, b.regions.function(text(op.attributes["decomposition"])), operands)


@basics.partwise
def sharding_constraint(b: Builder, op: sdy.ShardingConstraintOp, x: Tensor) -> Tensor:
    """Where values lie does not change them."""
    return x
