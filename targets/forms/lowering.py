"""What the lowering of a graph, node by node, has in common: handlers by opset, values, where a refusal is.

A compiler says how it lowers one node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.forms.calling import subject
from convertkit.targets.forms.free_sizes import ways_out

T = TypeVar("T")


class Operators:
    """The handlers of one model, whose ``opsets`` are named by domain."""

    def __init__(self, registry: Registry, opsets: Mapping[str, int]) -> None:
        self._registry = registry
        self._opsets = opsets

    def find(self, node: ir.Node) -> Handler | None:
        """The handler of a node as its opset defines it, None where there is none."""
        return self._registry.find(node.op_type, self._opsets.get(node.domain, 1), node.domain)

    def version(self, node: ir.Node) -> int:
        """The version of the node's schema; 1 for an operator without one."""
        from onnx import defs

        try:
            return int(defs.get_schema(node.op_type, self._opsets.get(node.domain, 1), node.domain).since_version)
        except defs.SchemaError:
            return 1

    def unknown(self, node: ir.Node, target: str) -> str:
        """Why a node has no handler."""
        if versions := self._registry.versions(node.op_type, node.domain):
            return f"{target} has it as opset {', '.join(map(str, versions))} defines it, not as this version does"
        return f"{target} has no such operator, and no exact decomposition is known"


class GraphLowering(ABC, Generic[T]):
    """Lowers the nodes of one graph; ``constant`` makes a tensor of stored numbers."""

    def __init__(self, operators: Operators, constant: Callable[[Array], T], ways_out: Sequence[str]) -> None:
        self._operators = operators
        self._constant = constant
        self._ways_out = tuple(ways_out)
        self._values: dict[ir.Value, T] = {}

    def bind(self, value: ir.Value, tensor: T) -> None:
        """Say what an input of the graph is."""
        self._values[value] = tensor

    def value(self, value: ir.Value) -> T:
        """The tensor of an ONNX value; initializers become constants when they are first used."""
        known = self._values.get(value)
        if known is None:
            assert value.const_value is not None, f"{value.name} has no value yet"
            known = self._values[value] = self._constant(value.const_value.numpy())
        return known

    def run(self, graph: ir.Graph) -> None:
        """Lower every node; ``Unsupported`` names the first that cannot be expressed."""
        for node in graph:
            try:
                self._node(node)
            except Unsupported as refusal:
                ways = ways_out(refusal, node, self._ways_out)
                raise refusal.located(self._subject(node), location(node), ways) from None

    def _subject(self, node: ir.Node) -> str:
        return subject(node, self._operators.version(node))

    @abstractmethod
    def _node(self, node: ir.Node) -> None:
        """Lower one node and bind its results."""
