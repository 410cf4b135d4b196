"""Functions of one number that are written out: several operators that compute each element from one element.

x → Greater(0) → Where(x, Exp(x) - 1) is one, as is x / (1 + |x|).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.onnx.edit import array_of, is_float32, sizes

OPERATORS = frozenset({
    "Abs", "Acos", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Clip", "Cos", "Cosh", "Div",
    "Elu", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "HardSigmoid", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu",
    "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Where", "Xor",
})  # fmt: skip
"""Operators of ONNX whose every element depends on the elements of their operands at its place."""

_LONGEST = 32
"""Operators of one function, more than any that is known has."""


@dataclass(frozen=True, slots=True)
class Function:
    """``nodes``, in order, that compute the output of the last one from ``source`` and constant numbers.

    Without nodes it is the source itself.
    """

    source: ir.Value
    nodes: tuple[ir.Node, ...]

    @property
    def result(self) -> ir.Value:
        """What they compute."""
        return self.nodes[-1].outputs[0] if self.nodes else self.source


def function_to(result: ir.Value | None, begins: Callable[[ir.Value], bool]) -> Function | None:
    """The function whose result a value is, of the one value that it is made of for which ``begins`` holds."""
    found: dict[ir.Node, None] = {}
    sources: dict[ir.Value, None] = {}
    waiting = [] if result is None or begins(result) else [result]
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if begins(value):
            sources[value] = None
        elif node is None or not is_pointwise(node) or len(found) > _LONGEST:
            return None
        elif node not in found:
            found[node] = None
            waiting += _operands(node)
    if len(sources) != 1 or not found:
        return None
    (source,) = sources
    assert result is not None
    return Function(source, _in_order(result, found)) if _alike(source, result) else None


def functions(graph: ir.Graph, is_known: Callable[[ir.Node], bool]) -> tuple[Function, ...]:
    """The shortest functions in which every operator that is not known lies, as far as there are such, none in two.

    Nothing beside a function reads what is between its operators.
    """
    chosen: dict[ir.Node, Function] = {}
    before: dict[ir.Value, tuple[ir.Value, ...]] = {}
    for node in graph:
        if not is_pointwise(node):
            continue
        chains = [(value, *before.get(value, ())) for value in _operands(node)]
        shared = [value for value in chains[0] if all(value in chain for chain in chains)] if chains else []
        before[node.outputs[0]] = tuple(shared[:_LONGEST])
        found = next((each for source in shared if (each := _closed(node.outputs[0], source)) is not None), None)
        if found is None or all(each in chosen or is_known(each) for each in found.nodes):
            continue
        within = {chosen[each] for each in found.nodes if each in chosen}
        if all(set(each.nodes) <= set(found.nodes) for each in within):
            chosen.update(dict.fromkeys(found.nodes, found))
    return tuple(dict.fromkeys(chosen.values()))


def _closed(result: ir.Value, source: ir.Value) -> Function | None:
    """The function of ``source`` that a value is, where both are floats and nothing else reads what is between."""
    found = function_to(result, lambda value: value is source) if is_float32(result) and is_float32(source) else None
    if found is None:
        return None
    inner = [value for node in found.nodes[:-1] for value in node.outputs]
    read = (use.node for value in inner for use in value.uses())
    ends = any(value.is_graph_output() for value in inner)
    return None if ends or any(node not in found.nodes for node in read) else found


def is_pointwise(node: ir.Node) -> bool:
    """Whether a node computes each element from elements at its place, and from constants of one number."""
    if node.domain != "" or node.op_type not in OPERATORS or len(node.outputs) != 1:
        return False
    rank = len(node.outputs[0].shape or ())
    constants = [array for value in node.inputs if (array := array_of(value)) is not None]
    return all(array.size == 1 and array.ndim <= rank for array in constants)


def _operands(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs if value is not None and array_of(value) is None]


def _alike(source: ir.Value, result: ir.Value) -> bool:
    """Whether both have one shape, so that no element is read for several."""
    return source.shape is not None and result.shape is not None and sizes(source) == sizes(result)


def _in_order(result: ir.Value, found: dict[ir.Node, None]) -> tuple[ir.Node, ...]:
    """Each node behind those that it reads."""
    ordered: dict[ir.Node, None] = {}

    def put(node: ir.Node) -> None:
        for value in _operands(node):
            maker = value.producer()
            if maker in found and maker not in ordered:
                put(maker)
        ordered[node] = None

    last = result.producer()
    assert last is not None
    put(last)
    return tuple(ordered)
