"""What the body of a reducer, comparator or scatter computes, read as an expression."""

from __future__ import annotations

from typing import Any, cast

from convertkit.converters.stablehlo.mlir import text
from convertkit.converters.stablehlo.reductions import Reducer

Expression = tuple[Any, ...]
"""``("arg", i)``, ``("const", value)`` or ``(operator, *expressions)``."""

_REDUCERS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})


def expressions(block: Any) -> tuple[Expression, ...]:
    """The values that a block yields, as expressions of its arguments."""
    known = trace(block)
    last = list(block.operations)[-1].operation
    return tuple(_of(known, value) for value in last.operands)


def trace(block: Any) -> dict[Any, Expression]:
    """Every value of a block as an expression of the block's arguments."""
    known: dict[Any, Expression] = {argument: ("arg", index) for index, argument in enumerate(block.arguments)}
    for op in block.operations:
        operation = op.operation
        operands = tuple(_of(known, value) for value in operation.operands)
        for index, result in enumerate(operation.results):
            head = _head(op) if len(operation.results) == 1 else f"{_head(op)}#{index}"
            known[result] = (head, *operands)
    return known


def _of(known: dict[Any, Expression], value: Any) -> Expression:
    return known[value] if value in known else ("outer", hash(value))


def _head(op: Any) -> str:
    name = op.operation.name.removeprefix("stablehlo.")
    if name == "compare":
        kind = "" if op.compare_type is None else text(op.compare_type)
        return f"compare {text(op.comparison_direction)} {kind}".strip()
    if name in ("constant", "custom_call", "reduce_precision"):
        return str(op.operation)[str(op.operation).index(name) :]
    if name == "convert":
        return f"convert {op.result.type}"
    return str(name)


def reducer_of(block: Any) -> Reducer | None:
    """The operator of a body that combines its two arguments with it, else None."""
    found = expressions(block)
    if len(found) != 1:
        return None
    head, *operands = found[0]
    if head in _REDUCERS and sorted(operands) == [("arg", 0), ("arg", 1)]:
        return cast("Reducer", head)
    return None


def takes_second(block: Any) -> bool:
    """Whether a body of two arguments yields the second: plain overwriting."""
    return expressions(block) == (("arg", 1),)


def value_of(block: Any, expression: Expression) -> Any:
    """A value of the block that computes ``expression``."""
    known = trace(block)
    return next(value for value, each in known.items() if each == expression)
