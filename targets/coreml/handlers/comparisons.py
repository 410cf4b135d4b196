"""ONNX comparisons and logic as MIL."""

from __future__ import annotations

from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.tensor import Tensor

comparisons = Registry()


def _comparison(kind: str) -> Handler:
    """Booleans are compared as integers."""

    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == "bool":
            x, y = b.cast(x, "int32"), b.cast(y, "int32")
        return b.op(kind, x=x, y=y)

    return handler


def _logical(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        return b.op(kind, x=x, y=y)

    return handler


for _op, _kind, _since in (
    ("Equal", "equal", (13, 19)),
    ("Greater", "greater", (13,)),
    ("GreaterOrEqual", "greater_equal", (16,)),
    ("Less", "less", (13,)),
    ("LessOrEqual", "less_equal", (16,)),
):
    comparisons.lowers(_op, since=_since)(_comparison(_kind))
for _op, _kind in (("And", "logical_and"), ("Or", "logical_or"), ("Xor", "logical_xor")):
    comparisons.lowers(_op, since=7)(_logical(_kind))


@comparisons.lowers("Not", since=1)
def not_(b: Builder, x: Tensor) -> Tensor:
    return b.op("logical_not", x=x)


@comparisons.lowers("Where", since=16)
def where(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return b.select(condition, x, y)
