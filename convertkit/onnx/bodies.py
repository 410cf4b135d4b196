"""The body of an If or a Loop as a model of its own, with what it reads of the graph around it as inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.artifact import Array, Artifact
from convertkit.onnx.load import load_own
from convertkit.onnx.probe import body_of, computed, read_by


@dataclass(frozen=True, slots=True)
class Control:
    """A node with bodies, by one of its outputs: its inputs' names (empty where one is left out), what its bodies read.

    ``reads`` are the values of the graph around it that a body reads, by the body's attribute; ``stored`` are those
    among all of these that are constants.
    """

    kind: str
    inputs: tuple[str, ...]
    reads: Mapping[str, tuple[str, ...]]
    stored: Mapping[str, Array]


def control(path: Path, output: str) -> Control | None:
    """The node of the main graph that makes ``output``, where it is an If or a Loop."""
    node = _maker(load_own(path), output)
    if node is None or node.op_type not in ("If", "Loop") or node.domain:
        return None
    reads = {
        attribute.name: [each for each in read_by([attribute.as_graph()]) if each.name]
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    }
    given = [value for value in node.inputs if value is not None]
    around = (*given, *(value for body in reads.values() for value in body))
    stored = {str(value.name): value.const_value.numpy() for value in around if value.const_value is not None}
    return Control(
        node.op_type,
        tuple("" if value is None else str(value.name) for value in node.inputs),
        {name: tuple(str(value.name) for value in body if value.const_value is None) for name, body in reads.items()},
        stored,
    )


def body_model(
    path: Path, output: str, attribute: str, given: Sequence[Array], outer: Sequence[tuple[str, Array]], place: Path
) -> Artifact:
    """One body of the node that makes ``output``, written to ``place``.

    ``given`` are examples of what the body's own inputs are, ``outer`` names of the graph around it with examples.
    They become the inputs ``body_input_0``, … and ``outer_value_0``, … in this order; outputs are ``body_output_0``, ….
    """
    from convertkit.onnx.save import save_model

    model = load_own(path)
    node = _maker(model, output)
    assert node is not None, f"{path.name} has no node that makes {output}"
    body = body_of(node, attribute)
    nodes, inputs, results = list(body), list(body.inputs), list(body.outputs)
    stored = [*body.initializers.values()]
    around = {str(value.name): value for value in read_by([body])}
    body.inputs.clear()
    body.outputs.clear()
    body.initializers.clear()
    body.remove(nodes)
    for value, example, number in zip(inputs, given, range(len(inputs)), strict=True):
        value.name = f"body_input_{number}"
        _describe(value, example)
    entries = dict(outer)
    for number, (name, example) in enumerate(entries.items()):
        entered = ir.Value(name=f"outer_value_{number}")
        _describe(entered, example)
        inputs.append(_in_place_of(around.pop(name), entered, results))
    stored += [
        _in_place_of(value, _copied(value), results) for value in around.values() if value.const_value is not None
    ]
    ends = [ir.node("Identity", [value], name=f"end_{number}") for number, value in enumerate(results)]
    for number, end in enumerate(ends):
        end.outputs[0].name = f"body_output_{number}"
    graph = ir.Graph(
        inputs,
        [end.outputs[0] for end in ends],
        nodes=[*nodes, *ends],
        initializers=stored,
        opset_imports=dict(model.graph.opset_imports),
        name="body",
    )
    made = ir.Model(graph, ir_version=model.ir_version, functions=tuple(model.functions.values()))
    ShapeInferencePass()(made)
    return save_model(made, place, "body")


def _maker(model: ir.Model, output: str) -> ir.Node | None:
    return next((node for node, value in computed(model) if value.name == output), None)


def _describe(value: ir.Value, example: Array) -> None:
    """The type and rank of an example; sizes stay open, which may change from turn to turn."""
    value.type = ir.TensorType(ir.DataType.from_numpy(example.dtype))
    value.shape = ir.Shape([None] * np.ndim(example))


def _copied(value: ir.Value) -> ir.Value:
    return ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=value.const_value)


def _in_place_of(value: ir.Value, made: ir.Value, results: list[ir.Value]) -> ir.Value:
    ir.convenience.replace_all_uses_with(value, made, replace_graph_outputs=True)
    results[:] = [made if each is value else each for each in results]
    return made
