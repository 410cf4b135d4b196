"""Nodes that take the place of one node of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.edit import initializer

Size = int | ir.SymbolicDim
_WAYS = ("--target onnxruntime",)


def write_each(model: ir.Model, forms: Mapping[str, Callable[[ir.Node], None]]) -> None:
    """Every node, those in bodies too, in the form of its operator, in place."""
    for node in tuple(model.graph.all_nodes()):
        if not node.domain and node.op_type in forms:
            forms[node.op_type](node)


class Place:
    """The place of ``node``, which new nodes are put in front of; each is named after it."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self._count = 0

    def op(
        self,
        operator: str,
        *inputs: ir.Value | None,
        like: ir.Value | None = None,
        dtype: ir.DataType | None = None,
        shape: Sequence[Size] | None = None,
        **attributes: int | float | str | Sequence[int],
    ) -> ir.Value:
        """What a new node computes: of the type and shape of ``like``, else of the first input, unless given."""
        model = like or next(value for value in inputs if value is not None)
        made = ir.node(operator, list(inputs), attributes, name=self._name(operator))
        made.metadata_props.update(self.node.metadata_props)
        result = made.outputs[0]
        result.name = made.name
        result.type = model.type if dtype is None else ir.TensorType(dtype)
        result.shape = model.shape if shape is None else ir.Shape(shape)
        assert self.node.graph is not None
        self.node.graph.insert_before(self.node, made)
        return result

    def read_through(
        self, value: ir.Value, operator: str, *before: ir.Value, **attributes: int | Sequence[int]
    ) -> None:
        """Who reads ``value``, an output of the node, reads what a new node behind it makes of it and ``before``.

        The new value takes over its name.
        """
        self._behind(value, operator, before, (), attributes)

    def read_behind(self, value: ir.Value, operator: str, *after: ir.Value, **attributes: int | Sequence[int]) -> None:
        """The same where ``value`` is the new node's first operand."""
        self._behind(value, operator, (), after, attributes)

    def _behind(
        self,
        value: ir.Value,
        operator: str,
        before: Sequence[ir.Value],
        after: Sequence[ir.Value],
        attributes: Mapping[str, int | Sequence[int]],
    ) -> None:
        made = ir.node(operator, [*before, value, *after], dict(attributes), name=self._name(operator))
        made.metadata_props.update(self.node.metadata_props)
        result, name = made.outputs[0], value.name
        result.type, result.shape = value.type, value.shape
        value.replace_all_uses_with(result, replace_graph_outputs=True)
        made.replace_input_with(len(before), value)
        assert self.node.graph is not None
        self.node.graph.insert_after(self.node, made)
        value.name, result.name = f"{name}/{operator}_of", name

    def constant(self, value: Array | np.generic) -> ir.Value:
        """A stored value."""
        return initializer(self.node, np.asarray(value), self._name("constant"))

    def becomes(self, *values: ir.Value | None) -> None:
        """``values`` take over the outputs and their names, and the node goes; None for an output that nobody reads."""
        pairs = [(old, new, old.name) for old, new in zip(self.node.outputs, values, strict=False) if new is not None]
        for old, new, _ in pairs:
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        assert self.node.graph is not None
        self.node.graph.remove(self.node, safe=True)
        for _, new, name in pairs:
            new.name = name

    def refused(self, reason: str) -> Unsupported:
        """The refusal of this node."""
        return refusal(self.node, reason)

    def _name(self, operator: str) -> str:
        self._count += 1
        return f"{self.node.outputs[0].name}/{operator}_{self._count}"


def refusal(node: ir.Node, reason: str) -> Unsupported:
    """``Unsupported`` that names the node, with the way out."""
    return Unsupported(reason, subject=f"{node.name} ({node.op_type})", ways_out=_WAYS)


def dims(value: ir.Value | None) -> tuple[Size, ...] | None:
    """The sizes of a value, None where not even its rank is known."""
    return None if value is None or value.shape is None else tuple(value.shape)
