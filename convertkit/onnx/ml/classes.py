"""What classes are called, by numbers or by words, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.onnx.fusion import Fusion

_INT64 = (ir.AttrInt64("to", int(ir.DataType.INT64)),)


@dataclass(frozen=True, slots=True)
class Classes:
    """The labels of a classifier, in the order of its scores; words where there are any, else numbers."""

    numbers: tuple[int, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.words or self.numbers)

    def at(self, f: Fusion, place: ir.Value) -> ir.Value:
        """The labels at ``place``, int64."""
        table = f.text(self.words) if self.words else f.tensor(np.array(self.numbers, np.int64))
        return f.op("Gather", table, place)

    def second_if(self, f: Fusion, condition: ir.Value) -> ir.Value:
        """Of two labels the second where ``condition`` holds, else the first."""
        if self.words:
            return self.at(f, f.op("Cast", condition, attributes=_INT64))
        first, second = self.numbers
        return f.op("Where", condition, f.scalar(second), f.scalar(first))


def classes_of(f: Fusion, numbers: str) -> Classes:
    """Those of the node; ``numbers`` is the name of the attribute that holds integers."""
    attributes = f.node.attributes
    words = tuple(attributes.get_strings("classlabels_strings", ()))
    return Classes(tuple(attributes.get_ints(numbers, ())), words)
