"""The model, node by node, in float64."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.twin.bodies import Bodies
from convertkit.onnx.twin.call import Call
from convertkit.onnx.twin.choices import OPERATORS, Choices
from convertkit.onnx.twin.handlers import HANDLERS
from convertkit.onnx.twin.noise import Noise
from convertkit.onnx.twin.outside import Outside
from convertkit.onnx.twin.values import Value, widened

Environment = dict[ir.Value, Value]


@dataclass(frozen=True, slots=True)
class Behind:
    """Nodes that choose among candidates or follow from such a choice, and the values that come from elsewhere.

    ``read`` holds what ``nodes`` read, and the graph's outputs, as far as no choice reaches them.
    """

    nodes: frozenset[ir.Node]
    read: frozenset[ir.Value]

    @classmethod
    def of(cls, graph: ir.Graph) -> Behind:
        """Of a model's main graph."""
        nodes, made = set[ir.Node](), set[ir.Value]()
        read = set(graph.outputs)
        for node in graph:
            operands = _read(node)
            if _chooses(node) or any(value in made for value in operands):
                nodes.add(node)
                made.update(node.outputs)
                read.update(operands)
        return cls(frozenset(nodes), frozenset(read - made))


def _chooses(node: ir.Node) -> bool:
    if node.op_type in OPERATORS and not node.domain:
        return True
    return any(_chooses(inner) for graph in _graphs(node) for inner in graph)


class Interpreter:
    """Computes graphs of one model; weights are widened once, and kernels are built once."""

    def __init__(self) -> None:
        self._bodies, self._outside = Bodies(), Outside()
        self._constants: dict[ir.Value, Value] = {}
        self._last: dict[ir.Graph, Mapping[ir.Node, tuple[ir.Value, ...]]] = {}
        self._behind: dict[ir.Graph, Behind] = {}

    def run(self, model: ir.Model, inputs: Mapping[str, Value], noise: Noise) -> tuple[Value, ...]:
        """The model's outputs, in order; an input that has a default may be absent."""
        known: Environment = {value: inputs[str(value.name)] for value in model.graph.inputs if value.name in inputs}
        with np.errstate(all="ignore"):  # infinities and NaN are results like any other
            return _Run(self, model.opset_imports, noise, known).graph(model.graph)

    def behind(self, model: ir.Model) -> Behind:
        """The part of the model that choices of best candidates reach."""
        if model.graph not in self._behind:
            self._behind[model.graph] = Behind.of(model.graph)
        return self._behind[model.graph]

    def ahead(self, model: ir.Model, inputs: Mapping[str, Value], noise: Noise) -> Environment:
        """What :meth:`rest` reads, computed by all nodes that no choice reaches."""
        behind = self.behind(model)
        known: Environment = {value: inputs[str(value.name)] for value in model.graph.inputs if value.name in inputs}
        nodes = [node for node in model.graph if node not in behind.nodes]
        with np.errstate(all="ignore"):
            _Run(self, model.opset_imports, noise, known).nodes(model.graph, nodes, behind.read)
        return {value: known[value] for value in behind.read if value in known}

    def rest(self, model: ir.Model, ahead: Environment, noise: Noise, choices: Choices) -> tuple[Value, ...]:
        """The model's outputs from what was computed ``ahead``, with other ``choices``."""
        behind = self.behind(model)
        run = _Run(self, model.opset_imports, noise, dict(ahead), choices)
        with np.errstate(all="ignore"):
            run.nodes(model.graph, [node for node in model.graph if node in behind.nodes], behind.read)
            return run.outputs(model.graph)

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

    def __init__(
        self,
        owner: Interpreter,
        opsets: Mapping[str, int],
        noise: Noise,
        known: Environment,
        choices: Choices | None = None,
    ) -> None:
        self._owner, self._opsets, self._noise, self._known = owner, opsets, noise, known
        self._choices = choices or Choices()

    def graph(self, graph: ir.Graph, inputs: Sequence[Value] = ()) -> tuple[Value, ...]:
        self._known.update(zip(graph.inputs, inputs, strict=False))
        self.nodes(graph, graph)
        return self.outputs(graph)

    def nodes(self, graph: ir.Graph, nodes: Iterable[ir.Node], keep: Collection[ir.Value] = ()) -> None:
        """Compute some of a graph's nodes, in order; what nothing reads any more is forgotten, but for ``keep``."""
        finished = self._owner.last_readers(graph)
        for node in nodes:
            operands = tuple(map(self._value, node.inputs))
            call = Call(node, operands, self._noise, self._opsets, self.graph, self._choices)
            results = self._owner.results(call)
            for value, result in zip(node.outputs, results, strict=False):
                self._known[value] = result
            for value in finished[node]:
                if value not in keep:
                    self._known.pop(value, None)

    def outputs(self, graph: ir.Graph) -> tuple[Value, ...]:
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
    for graph in _graphs(node):
        found += list(graph.outputs)
        found += [value for inner in graph for value in _read(inner)]
    return found


def _graphs(node: ir.Node) -> list[ir.Graph]:
    found = list[ir.Graph]()
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found += attribute.as_graphs()
    return found
