"""One node that stands for several, while it is being rewritten into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.artifact import Array
from convertkit.errors import Unsupported


class Fusion:
    """Collects the nodes that replace ``node``; ``op`` appends one and returns its result."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.nodes: list[ir.Node] = []

    @property
    def title(self) -> str:
        """How errors name the node."""
        return f"{self.node.name or 'node'} ({self.node.domain}.{self.node.op_type})"

    def op(self, kind: str, *inputs: ir.Value, attributes: Sequence[ir.Attr] = ()) -> ir.Value:
        """Append an operator of ONNX with one result."""
        return self.ops(kind, *inputs, attributes=attributes)[0]

    def ops(self, kind: str, *inputs: ir.Value, attributes: Sequence[ir.Attr] = (), count: int = 1) -> list[ir.Value]:
        """Append an operator of ONNX with ``count`` results."""
        name = f"{self.node.name}/{kind}_{len(self.nodes)}"
        made = ir.Node("", kind, list(inputs), list(attributes), num_outputs=count, name=name)
        made.metadata_props.update(self.node.metadata_props)
        self.nodes.append(made)
        return list(made.outputs)

    def tensor(self, array: Array) -> ir.Value:
        """A constant."""
        return self.op("Constant", attributes=[ir.AttrTensor("value", ir.tensor(array))])

    def text(self, words: Sequence[str]) -> ir.Value:
        """A constant list of words."""
        stored = ir.StringTensor([word.encode() for word in words], shape=ir.Shape([len(words)]))
        return self.op("Constant", attributes=[ir.AttrTensor("value", stored)])

    def number(self, value: float) -> ir.Value:
        """A scalar of the node's own float type."""
        first = self.node.inputs[0]
        kind = ir.DataType.FLOAT if first is None or first.dtype is None else first.dtype
        return self.tensor(np.array(value, kind.numpy()))

    def ints(self, *values: int) -> ir.Value:
        """A vector of int64."""
        return self.tensor(np.array(values, np.int64))

    def scalar(self, value: int) -> ir.Value:
        """One int64."""
        return self.tensor(np.array(value, np.int64))

    def given(self, place: int) -> ir.Value | None:
        """An input, None where it is left out."""
        return self.node.inputs[place] if place < len(self.node.inputs) else None

    def input(self, place: int) -> ir.Value:
        """An input that has to be there."""
        value = self.given(place)
        if value is None:
            raise Unsupported(f"input {place} is left out", subject=self.title)
        return value

    def constant(self, place: int) -> Array:
        """An input that has to be constant."""
        stored = self.input(place).const_value
        if stored is None:
            raise Unsupported(f"input {place} is computed at run time", subject=self.title)
        return stored.numpy()

    def rank(self, value: ir.Value) -> int:
        """The rank, which has to be known."""
        if value.shape is None:
            raise Unsupported(f"the rank of {value.name} is unknown", subject=self.title)
        return len(value.shape)

    def whole(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return self.node.attributes.get_int(name, default)

    def real(self, name: str, default: float) -> float:
        """A float attribute."""
        return self.node.attributes.get_float(name, default)

    def gelu(self, x: ir.Value) -> ir.Value:
        """``x / 2 * (1 + erf(x / sqrt(2)))``."""
        curve = self.op("Erf", self.op("Div", x, self.number(np.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", curve, self.number(1.0))), self.number(0.5))

    def swapped(self, x: ir.Value) -> ir.Value:
        """The last two axes exchanged."""
        order = list(range(self.rank(x)))
        order[-2:] = order[:-3:-1]
        return self.op("Transpose", x, attributes=[ir.AttrInt64s("perm", order)])


Results = Sequence[ir.Value | None] | None
"""What stands for each result of a node; None where it has no exact counterpart, and the node stays."""
Rule = Callable[[Fusion], Results]


def replace_node(model: ir.Model, graph: ir.Graph, node: ir.Node, rule: Rule) -> bool:
    """Put what ``rule`` makes of ``node`` in its place; False where it makes nothing.

    Raises ``Unsupported`` where a result is used for which the rule has nothing.
    """
    if any(value is not None and value.shape is None and value.const_value is None for value in node.inputs):
        ShapeInferencePass()(model)
    fusion = Fusion(node)
    results = rule(fusion)
    if results is None:
        return False
    results = [_own(fusion, value) for value in results]
    graph.insert_before(node, fusion.nodes)
    for place, old in enumerate(node.outputs):
        new = results[place] if place < len(results) else None
        if new is None:
            if old.uses() or old.is_graph_output():
                raise Unsupported(f"its output {place} is used, for which there is no rule", subject=fusion.title)
            continue
        new.shape = old.shape
        if old.dtype is not None:
            new.type = ir.TensorType(old.dtype)
        name = old.name
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        old.name, new.name = f"{name}/fused", name
    graph.remove(node, safe=True)
    return True


def _own(fusion: Fusion, value: ir.Value | None) -> ir.Value | None:
    """A result of the fusion's own: an input that is handed on would otherwise be renamed."""
    return value if value is None or value.producer() in fusion.nodes else fusion.op("Identity", value)
