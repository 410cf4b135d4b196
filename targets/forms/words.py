"""Integers that a runtime of 32 bits does not hold: refused where that is known, told where the data decides.

Sizes of tensors are taken to be small.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.integer_ranges import Range, Ranges
from convertkit.onnx.intervals import Interval, of_numbers
from convertkit.targets.forms.writing import refusal

WIDE: Final = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64})
_WORD: Interval = (-(2.0**31), 2.0**31 - 1)
SIZES: Final[Interval] = (-(2.0**20), 2.0**20)
"""What sizes of tensors, and places along them, are taken to lie between."""
_ENDS = frozenset({"Slice", "Max", "Min", "Clip"})
"""Operators that take a number beyond 32 bits for the end of their range, as such runtimes do."""


class Words:
    """Looks at a graph's nodes in their order; ``holder`` is the runtime, ``whole`` what of it has 32 bits."""

    def __init__(self, holder: str, whole: str = "") -> None:
        self._whole = whole or holder
        self.ranges = Ranges(holder, strict=False)
        self._sizes: set[ir.Value] = set()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user has to know of integers that the data decides."""
        return self.ranges.notes

    def look(self, node: ir.Node) -> None:
        """Take in one node, whose operands were taken in before it; ``Unsupported`` for what never fits."""
        if self._is_of_sizes(node):
            self._sizes.update(node.outputs)
            for value in node.outputs:
                self.ranges.assume(value, Range(SIZES))
            return
        if node.op_type in _ENDS:
            self._cut_ends(node)
        else:
            self._check_constants(node)
        name = f"{node.name} ({node.op_type})"
        try:
            for value in node.outputs:
                self.ranges.add(node, value, name)
        except Unsupported as error:
            raise refusal(node, error.reason) from error
        self.noted(node, name)

    def noted(self, node: ir.Node, name: str) -> None:
        """What else a runtime has to say of a node whose ranges are known now."""

    def _cut_ends(self, node: ir.Node) -> None:
        """Numbers that stand for the end of the range are that of 32 bits."""
        for value in node.inputs:
            if value is not None and value.dtype in WIDE and value.const_value is not None and value.const_value.size:
                least, most = of_numbers(value.const_value.numpy())
                self.ranges.assume(value, Range((max(least, _WORD[0]), min(most, _WORD[1]))))

    def _is_of_sizes(self, node: ir.Node) -> bool:
        """Whether all that it computes is made of sizes."""
        if node.op_type in ("Shape", "Size"):
            return True
        moving = [value for value in node.inputs if value is not None and value.const_value is None]
        return bool(moving) and all(value in self._sizes for value in moving)

    def _check_constants(self, node: ir.Node) -> None:
        for value in node.inputs:
            known = None if value is None or value.dtype not in WIDE else value.const_value
            if known is None or known.size == 0:
                continue
            numbers = known.numpy()
            least, most = int(numbers.min()), int(numbers.max())
            if least < _WORD[0] or (most > _WORD[1] and known.dtype != ir.DataType.UINT32):
                beyond = least if least < _WORD[0] else most
                raise refusal(node, f"the integer {beyond}: {self._whole} has 32 bits")
