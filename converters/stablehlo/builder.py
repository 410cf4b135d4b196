"""What a handler writes with: a tape, and the interpreter for regions inside its operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import onnx_ir as ir

from convertkit.converters.stablehlo.at_sizes import AtSizes
from convertkit.converters.stablehlo.reductions import Reductions
from convertkit.converters.stablehlo.sizes import Number
from convertkit.converters.stablehlo.tensor import Complex, Operand, Tensor


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a loop over all rows of a dynamic axis: its number from 0, and how many there are, as int64 scalars."""

    rows: Number
    number: Tensor
    trips: Tensor


class Regions(Protocol):
    """Interprets MLIR blocks for handlers of operators with regions.

    ``turns`` has the counters of the loops at hand that run as often as a dynamic axis is long, ``at_sizes`` what the
    function computes of the sizes of its inputs.
    """

    turns: dict[Any, Turn]
    at_sizes: AtSizes

    def collects(self, loop: Any) -> bool:
        """Whether a loop may collect rows of a dynamic size, which recognition of recurrent cells needs."""
        ...

    def inline(self, b: Builder, block: Any, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        """Record the block's operators on the tape and return what it yields."""
        ...

    def vectorized(self, b: Builder, block: Any, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        """The same with whole tensors in place of the block's scalars; pointwise operators only."""
        ...

    def value(self, b: Builder, block: Any, operands: Sequence[Operand], wanted: Any) -> Operand:
        """One value of the block, over whole tensors, recording only what it needs."""
        ...

    def known(self, value: Any) -> Operand:
        """What a value that stands before the operator at hand became."""
        ...

    def function(self, name: str) -> Any:
        """The entry block of a function of the module."""
        ...


class Builder(Reductions):
    """The tape that handlers see."""

    regions: Regions

    def child(self) -> Builder:
        """A builder for the body of a subgraph."""
        inner = Builder(self)
        inner.regions = self.regions
        return inner

    def graph(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> ir.Graph:
        """Close a child tape as a subgraph; outputs get a node of their own inside it."""
        results = []
        for output in outputs:
            whole = self.full(output)
            copied = self.op("Identity", [whole], whole.shape, whole.dtype)
            results.append(self.value(copied))
        return ir.Graph([self.value(each) for each in inputs], results, nodes=self.nodes, name=name)


def parts(operands: Sequence[Operand]) -> list[Tensor]:
    """Every tensor that the operands consist of; a complex one gives two."""
    flat: list[Tensor] = []
    for operand in operands:
        flat += [operand.re, operand.im] if isinstance(operand, Complex) else [operand]
    return flat


def assembled(template: Sequence[bool], tensors: Sequence[Tensor]) -> list[Operand]:
    """The inverse of :func:`parts`; ``template`` says which operands are complex."""
    source = iter(tensors)
    return [Complex(next(source), next(source)) if is_complex else next(source) for is_complex in template]
