"""Values inside of an ONNX file, and parts of it."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.artifact import Array, Artifact, Quantization, TensorSpec
from convertkit.onnx.load import load_own
from convertkit.onnx.origin import location
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.specs import dtype_name
from convertkit.probing import Inner
from convertkit.stage import Feed


class OnnxProbe:
    """The main graph of one file; what lies in the bodies of If, Loop and Scan is not told."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = replace(artifact, format="onnx")

    def inner(self) -> tuple[Inner, ...]:
        """What each node computes, but for sequences and text."""
        model = inferred(self._artifact.path)
        return tuple(_described(node, value) for node, value in computed(model))

    def port(self, name: str) -> str:
        """Inside it is called the same."""
        return name

    def values(self, feed: Feed, names: Sequence[str]) -> Mapping[str, Array]:
        """Run the file with these as further outputs, graph optimisations off."""
        own = {spec.name for spec in self._artifact.outputs}
        wanted = replace(self._artifact, outputs=tuple(TensorSpec(name, (), "float32") for name in names))
        known = {spec.name: spec for spec in self._artifact.inputs}
        given = {name: value for name, value in feed.items() if name in known}
        with OnnxRunner(wanted, unread=tuple(name for name in names if name not in own)) as runner:
            return runner.run(given)

    def cut(self, inputs: Sequence[str], outputs: Sequence[str], path: Path) -> None:
        """Write the nodes between these values."""
        from convertkit.onnx.save import save_model

        save_model(part(inferred(self._artifact.path), inputs, outputs), path, "cut")


def inferred(path: Path) -> ir.Model:
    """The model with the types and shapes of its values, as far as they can be inferred."""
    model = load_own(path)
    if any(value.dtype is None or value.shape is None for node in model.graph for value in node.outputs):
        ShapeInferencePass()(model)
    return model


def computed(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """The tensors that nodes of the main graph compute, constants aside, each with its node."""
    for node in model.graph:
        if node.op_type == "Constant" and not node.domain:
            continue
        for value in node.outputs:
            is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
            if value.name and is_tensor and value.dtype not in (ir.DataType.STRING, ir.DataType.UNDEFINED):
                yield node, value


def _described(node: ir.Node, value: ir.Value) -> Inner:
    reads = [each for each in _read(node) if each.const_value is None and each.name]
    shape = () if value.shape is None else tuple(size if isinstance(size, int) else 1 for size in value.shape)
    dtype = "" if value.dtype is None else dtype_name(value.dtype)
    domain = f"{node.domain}." if node.domain else ""
    return Inner(
        str(value.name),
        f"{domain}{node.op_type}",
        str(node.name or ""),
        tuple(str(each.name) for each in reads),
        shape,
        dtype,
        _step(node, value),
        location(node),
    )


def _step(node: ir.Node, value: ir.Value) -> Quantization | None:
    """The parameters of a value that QuantizeLinear or DequantizeLinear makes; None where they are many, or none."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or node.domain:
        return None
    scale, zero = (*node.inputs, None)[1:3]
    if scale is None or scale.const_value is None or scale.const_value.size != 1:
        return None
    offset = 0 if zero is None or zero.const_value is None else int(zero.const_value.numpy().reshape(()))
    return Quantization(float(scale.const_value.numpy().reshape(())), offset)


def part(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> ir.Model:
    """What computes ``outputs`` from ``inputs`` and whatever inputs of the model that takes, in place.

    An output may be an input, too: then it is computed, and who reads it reads the input ``NAME__given``.  So one run
    tells what every node makes of values that come from elsewhere.
    """
    graph = model.graph
    values = {str(value.name): value for _, value in computed(model)}
    graph.outputs.clear()  # before uses are replaced, of which an output is one
    given = list[ir.Value]()
    for name in inputs:
        if name not in values:
            continue  # an input of the model itself
        inner = values[name]
        outer = ir.Value(name=given_name(name), type=inner.type)
        outer.shape = None if inner.shape is None else ir.Shape([None] * len(inner.shape))
        ir.convenience.replace_all_uses_with(inner, outer, replace_graph_outputs=False)
        given.append(outer)
    wanted = [values[name] for name in outputs]
    graph.outputs.extend(wanted)
    graph.inputs.extend(given)
    for value in wanted:
        if value.shape is not None:  # cut from what fixed them, sizes need not be what inference said
            value.shape = ir.Shape([None] * len(value.shape))
    _keep_needed(graph, wanted)
    return model


def _keep_needed(graph: ir.Graph, wanted: Collection[ir.Value]) -> None:
    needed = {value.producer() for value in wanted} - {None}
    for node in reversed(list(graph)):
        if node in needed:
            needed |= {value.producer() for value in _read(node)}
    for node in reversed(list(graph)):
        if node not in needed:
            _let_go(node)
            graph.remove(node, safe=True)
    used = {value for node in graph.all_nodes() for value in node.inputs if value is not None}
    used |= {value for each in graph.subgraphs() for value in each.outputs}
    for value in [value for value in graph.inputs if value not in used]:
        graph.inputs.remove(value)
    for name in [
        name for name, value in graph.initializers.items() if value not in used and not value.is_graph_output()
    ]:
        del graph.initializers[name]


def _read(node: ir.Node) -> tuple[ir.Value, ...]:
    """What a node reads, and what its bodies read of the graph around it, each once."""
    outer = read_by(tuple(_bodies(node)))
    return tuple(dict.fromkeys((*(each for each in node.inputs if each is not None), *outer)))


def read_by(bodies: Sequence[ir.Graph]) -> tuple[ir.Value, ...]:
    """What bodies of a node, and the bodies in them, read of the graph around it, each once."""
    nodes = [inner for body in bodies for inner in body.all_nodes()]
    every = [*bodies, *(body for inner in nodes for body in _bodies(inner))]
    inside = {value for body in every for value in (*body.inputs, *body.initializers.values())}
    inside |= {value for inner in nodes for value in inner.outputs}
    read = [value for inner in nodes for value in inner.inputs]
    read += [value for body in every for value in body.outputs]
    return tuple(dict.fromkeys(value for value in read if value is not None and value not in inside))


def body_of(node: ir.Node, attribute: str) -> ir.Graph:
    """The body of that name."""
    return node.attributes[attribute].as_graph()


def _let_go(node: ir.Node) -> None:
    """Have the bodies of a node that goes read nothing of the graph around it."""
    for body in _bodies(node):
        for inner in body.all_nodes():
            for place in range(len(inner.inputs)):
                inner.replace_input_with(place, None)


def _bodies(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()


def given_name(name: str) -> str:
    """What an inner value is called where it becomes an input."""
    return f"{name}__given"


def with_cuts(artifact: Artifact, cuts: Sequence[str], outputs: Sequence[str], folder: Path) -> Artifact:
    """The model of ``outputs``, each computed from what is cut and the inputs, as an artifact in ``folder``."""
    from convertkit.onnx.save import save_model

    made = part(inferred(artifact.path), cuts, outputs)
    place = Path(tempfile.mkdtemp(prefix="cut-", dir=folder))
    return save_model(made, place / "cut.onnx", "cut")
