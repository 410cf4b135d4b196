"""How often the subgraphs of a TFLite file run in a call: read from loops that count to a constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ai_edge_litert import schema_py_generated as schema


def turns(model: Any, graphs: Sequence[Any]) -> list[float | None]:
    """Of each subgraph, 1 for the first; None where a file does not say it, 0 for one that nothing runs.

    ``graphs`` are the tensors of each (:class:`~convertkit.targets.tflite.inspection.Tensors`).  A loop is counted
    whose condition is one LESS of a value and a constant, where its body adds a constant to that value.
    """
    found: list[float | None] = [1.0, *(0.0 for _ in graphs[1:])]
    for place in range(len(graphs)):
        graph = model.Subgraphs(place)
        for index in range(graph.OperatorsLength()):
            operator = graph.Operators(index)
            if _kind(model, operator) != schema.BuiltinOperator.WHILE:
                continue
            options = schema.WhileOptions()
            table = operator.BuiltinOptions()
            options.Init(table.Bytes, table.Pos)
            condition, body = options.CondSubgraphIndex(), options.BodySubgraphIndex()
            outer, count = found[place], _count(model, graphs, place, operator, condition, body)
            known = outer is not None and count is not None
            for inner, more in ((condition, 1), (body, 0)):
                found[inner] = outer * (count + more) if known else None  # type: ignore[operator]
    return found


def _kind(model: Any, operator: Any) -> int:
    entry = model.OperatorCodes(operator.OpcodeIndex())
    return int(max(entry.BuiltinCode(), entry.DeprecatedBuiltinCode()))


def _count(model: Any, graphs: Sequence[Any], place: int, operator: Any, condition: int, body: int) -> int | None:
    """Turns of one loop."""
    compared = _compared(model, graphs, condition)
    if compared is None:
        return None
    value, limit = compared
    step = _raised(model, graphs, body, value)
    start = _number(graphs[place], operator.Inputs(value))
    if start is None or step is None or step <= 0:
        return None
    return max(-(-(limit - start) // step), 0)


def _compared(model: Any, graphs: Sequence[Any], condition: int) -> tuple[int, int] | None:
    """The place of what counts among a loop's values, and what it has to be less than."""
    graph = model.Subgraphs(condition)
    if graph.OperatorsLength() != 1 or _kind(model, graph.Operators(0)) != schema.BuiltinOperator.LESS:
        return None
    value, limit = graph.Operators(0).Inputs(0), graph.Operators(0).Inputs(1)
    inputs = [graph.Inputs(index) for index in range(graph.InputsLength())]
    most = _number(graphs[condition], limit)
    return None if value not in inputs or most is None else (inputs.index(value), most)


def _raised(model: Any, graphs: Sequence[Any], body: int, place: int) -> int | None:
    graph = model.Subgraphs(body)
    before, after = graph.Inputs(place), graph.Outputs(place)
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        if operator.OutputsLength() == 1 and operator.Outputs(0) == after:
            read = {operator.Inputs(0), operator.Inputs(1)} if operator.InputsLength() > 1 else set[int]()
            if _kind(model, operator) != schema.BuiltinOperator.ADD or before not in read or len(read) < 2:
                return None
            return _number(graphs[body], next(iter(read - {before})))
    return None


def _number(tensors: Any, index: int) -> int | None:
    """A constant int32 of one element."""
    if index < 0 or tensors.dtype(index) != "int32" or not tensors.stored_bytes(index):
        return None
    numbers = tensors.numbers(index)
    return int(numbers[0]) if len(numbers) == 1 else None
