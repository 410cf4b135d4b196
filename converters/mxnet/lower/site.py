"""Where one operator is lowered."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.errors import Unsupported
from convertkit.onnx.tape import Tape


@dataclass(frozen=True, slots=True)
class Site:
    """Operands of a node: ``shapes`` are those of one run, of which only ranks and those of weights are to be used.

    ``constants`` has the numbers of what no input reaches, else None.
    """

    tape: Tape
    attributes: Attributes
    values: tuple[ir.Value, ...]
    shapes: tuple[tuple[int, ...], ...]
    constants: tuple[Array | None, ...]

    @property
    def rank(self) -> int:
        """Of the first operand."""
        return len(self.shapes[0])

    def refused(self, reason: str) -> Unsupported:
        return Unsupported(reason, subject=self.attributes.title)

    def op(self, kind: str, *operands: ir.Value, **attributes: int | float | str | list[int]) -> ir.Value:
        return self.tape.op(kind, *operands, **attributes)
