"""The model, node by node, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.twin.bodies import Bodies
from convertkit.onnx.twin.call import Call
from convertkit.onnx.twin.handlers import HANDLERS
from convertkit.onnx.twin.noise import Noise
from convertkit.onnx.twin.outside import Outside
from convertkit.onnx.twin.values import Value, widened

Environment = dict[ir.Value, Value]


class Interpreter:
    """Computes graphs of one model; weights are widened once, and kernels are built once."""

    def __init__(self) -> None:
        self._bodies, self._outside = Bodies(), Outside()
        self._constants: dict[ir.Value, Value] = {}
        self._last: dict[ir.Graph, Mapping[ir.Node, tuple[ir.Value, ...]]] = {}

    def run(self, model: ir.Model, inputs: Mapping[str, Value], noise: Noise) -> tuple[Value, ...]:
        """The model's outputs, in order; an input that has a default may be absent."""
        known: Environment = {value: inputs[str(value.name)] for value in model.graph.inputs if value.name in inputs}
        with np.errstate(all="ignore"):  # infinities and NaN are results like any other
            return _Run(self, model.opset_imports, noise, known).graph(model.graph)

    def constant(self, value: ir.Value) -> Value:
        """An initializer, widened."""
        if value not in self._constants:
            if value.const_value is None:
                raise Unsupported(f"nothing produces {value.name}")
            self._constants[value] = widened(value.const_value.numpy())
        return self._constants[value]

    def results(self, call: Call) -> Sequence[Value]:
        """Of one node: our own kernel, the operator's body, or someone else's kernel."""
        handler = HANDLERS.get((call.node.domain, call.node.op_type))
        if handler is not None:
            results = handler(call)
            if results is not None:
                return results
        body = self._bodies.of(call)
        if body is None:
            return self._outside.run(call)
        inputs = {f"in{i}": value for i, value in enumerate(call.inputs) if value is not None}
        found = self.run(body, inputs, call.noise)
        by_name = {value.name: result for value, result in zip(body.graph.outputs, found, strict=True)}
        return [by_name.get(f"out{i}") for i in range(len(call.node.outputs))]

    def last_readers(self, graph: ir.Graph) -> Mapping[ir.Node, tuple[ir.Value, ...]]:
        """By node of ``graph`` the values that nothing behind it reads."""
        if graph not in self._last:
            self._last[graph] = _last_readers(graph)
        return self._last[graph]


class _Run:
    """One run of a model: what is known, by value; subgraphs see what is around them."""

    def __init__(self, owner: Interpreter, opsets: Mapping[str, int], noise: Noise, known: Environment) -> None:
        self._owner, self._opsets, self._noise, self._known = owner, opsets, noise, known

    def graph(self, graph: ir.Graph, inputs: Sequence[Value] = ()) -> tuple[Value, ...]:
        self._known.update(zip(graph.inputs, inputs, strict=False))
        finished = self._owner.last_readers(graph)
        for node in graph:
            call = Call(node, tuple(map(self._value, node.inputs)), self._noise, self._opsets, self.graph)
            results = self._owner.results(call)
            for value, result in zip(node.outputs, results, strict=False):
                self._known[value] = result
            for value in finished[node]:
                self._known.pop(value, None)
        return tuple(map(self._value, graph.outputs))

    def _value(self, value: ir.Value | None) -> Value:
        if value is None:
            return None
        if value in self._known:
            return self._known[value]
        return self._owner.constant(value)


def _last_readers(graph: ir.Graph) -> Mapping[ir.Node, tuple[ir.Value, ...]]:
    last: dict[ir.Value, ir.Node] = {}
    inside = {value for node in graph for value in node.outputs}
    for node in graph:
        last.update((value, node) for value in (*node.outputs, *_read(node)) if value in inside)
    for value in graph.outputs:
        last.pop(value, None)
    found: dict[ir.Node, list[ir.Value]] = {node: [] for node in graph}
    for value, node in last.items():
        found[node].append(value)
    return {node: tuple(values) for node, values in found.items()}


def _read(node: ir.Node) -> list[ir.Value]:
    """What ``node`` and its subgraphs read."""
    found = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        graphs = [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH else []
        for graph in (*graphs, *(attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ())):
            found += list(graph.outputs)
            found += [value for inner in graph for value in _read(inner)]
    return found
