"""A graph of MXNet: executed in float64, and written as ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, TensorSpec
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.converters.mxnet.evaluate import EVALUATORS, evaluated
from convertkit.converters.mxnet.lower import LOWERINGS
from convertkit.converters.mxnet.lower.site import Site
from convertkit.converters.mxnet.symbol import Node, Symbol
from convertkit.errors import ConvertKitError, SourceError, Unsupported
from convertkit.onnx.tape import Tape

_LABELLED = frozenset({
    "SoftmaxOutput", "Softmax", "LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput",
})  # fmt: skip
"""Layers of losses, whose second input is a label that only training reads."""
_ONLY_ZERO = frozenset({"RNN"})
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Model:
    """A graph with its weights by name."""

    symbol: Symbol
    weights: Mapping[str, Array]

    def inputs(self) -> tuple[str, ...]:
        """Variables that are not weights, in the order of the graph, without labels."""
        return tuple(
            node.name
            for place, node in enumerate(self.symbol.nodes)
            if node.kind == "null" and node.name not in self.weights and place in self.needed()
        )

    def needed(self) -> frozenset[int]:
        """The places of nodes that the results follow from."""
        found: set[int] = set()
        left = [place for place, _ in self.symbol.heads]
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                left += [source for source, _ in operands(self.symbol.nodes[place])]
        return frozenset(found)

    def outputs(self) -> tuple[str, ...]:
        """Names as MXNet gives them: of the node, and the result's number where there are several."""
        names = [f"{self.symbol.nodes[place].name}_output{result or ''}" for place, result in self.symbol.heads]
        if len(set(names)) != len(names):
            raise Unsupported("two results of the graph are the same value")
        return tuple(names)

    def check(self) -> None:
        """``Unsupported`` names the first operator that is not known."""
        for place in sorted(self.needed()):
            node = self.symbol.nodes[place]
            if node.kind != "null" and node.kind not in EVALUATORS:
                raise Unsupported("the operator is not one that is read", subject=node.title)


def operands(node: Node) -> tuple[Key, ...]:
    """What an operator reads when it does not train."""
    return node.inputs[:1] if node.kind in _LABELLED else node.inputs


def run(model: Model, feed: Mapping[str, Array]) -> dict[Key, Array]:
    """Every value that is needed, in float64; ``SourceError`` names the node whose sizes do not fit."""
    values: dict[Key, Array] = {}
    for place in sorted(model.needed()):
        node = model.symbol.nodes[place]
        if node.kind == "null":
            given = feed[node.name] if node.name in feed else model.weights[node.name]
            values[place, 0] = np.asarray(given, np.float64)
            continue
        attributes = Attributes(node.title, node.attributes)
        try:
            with np.errstate(all="ignore"):
                found = evaluated(node.kind, attributes, [values[key] for key in operands(node)])
        except (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, AssertionError) as error:
            raise SourceError(f"{node.title} cannot be computed from its inputs: {error}") from error
        attributes.check()
        values.update({(place, result): value for result, value in enumerate(found)})
    return values


def to_onnx(model: Model, inputs: Sequence[TensorSpec]) -> ir.Model:
    """The graph; sizes that inputs leave open stay so."""
    once = {spec.name: np.zeros([size if isinstance(size, int) else 3 for size in spec.shape]) for spec in inputs}
    concrete = run(model, once)
    tape, values = Tape(), dict[Key, ir.Value]()
    for spec in inputs:
        place = next(at for at, node in enumerate(model.symbol.nodes) if node.name == spec.name)
        values[place, 0] = tape.input(spec.name, ir.DataType.FLOAT, *spec.shape)
    constant: dict[Key, Array] = {}
    for place in sorted(model.needed()):
        node = model.symbol.nodes[place]
        if node.kind == "null":
            if node.name in model.weights:
                constant[place, 0] = concrete[place, 0]
                values[place, 0] = tape.weight(np.asarray(model.weights[node.name], np.float32), node.name)
            continue
        made = _lowered(tape, node, values, concrete, constant)
        values.update({(place, result): value for result, value in enumerate(made)})
        if all(key in constant for key in operands(node)):
            constant.update({(place, result): concrete[place, result] for result in range(len(made))})
    _check_zeros(model)
    for key, name in zip(model.symbol.heads, model.outputs(), strict=True):
        if key not in values:
            raise SourceError(f"{model.symbol.nodes[key[0]].title} has no result {key[1]}")
        tape.output(tape.op("Identity", values[key]), name, *([None] * concrete[key].ndim))
    return tape.model()


def _lowered(
    tape: Tape,
    node: Node,
    values: Mapping[Key, ir.Value],
    concrete: Mapping[Key, Array],
    constant: Mapping[Key, Array],
) -> list[ir.Value]:
    attributes, keys = Attributes(node.title, node.attributes), operands(node)
    tape.place = node.name
    site = Site(
        tape,
        attributes,
        tuple(values[key] for key in keys),
        tuple(concrete[key].shape for key in keys),
        tuple(constant.get(key) for key in keys),
    )
    try:
        made = LOWERINGS[node.kind](site)
    except ConvertKitError:
        raise
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise SourceError(f"{node.title} cannot be read: {error}") from error
    return made if isinstance(made, list) else [made]


def _check_zeros(model: Model) -> None:
    """Zeros of a size that MXNet finds out are understood as the first state of an RNN alone."""
    nodes = model.symbol.nodes
    for place in model.needed():
        for source, _ in operands(nodes[place]):
            zeros = nodes[source]
            open_size = zeros.kind == "_zeros" and 0 in Attributes(zeros.title, zeros.attributes).ints("shape")
            if open_size and nodes[place].kind not in _ONLY_ZERO:
                raise Unsupported("zeros of a size that is not told", subject=zeros.title)
