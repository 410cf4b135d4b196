"""Pre- and post-processing written into canonical ONNX, as ordinary operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import Attribute, add_constant
from convertkit.processing.audio_graph import write_sound
from convertkit.processing.detection_graph import write_detections
from convertkit.processing.interface import Picture, Processing, Scores
from convertkit.processing.reference import factor

_NONE: Mapping[str, Attribute] = {}


def write_in(model: ir.Model, processing: Processing) -> None:
    """Put ``processing`` around the graph of ``model``, in place; shapes of new values are left to inference."""
    if processing.picture is not None:
        _pictures(model.graph, processing.picture)
    if processing.sound is not None:
        write_sound(model.graph, processing.sound)
    if processing.scores is not None:
        _choices(model.graph, processing.scores)
    if processing.detections is not None:
        write_detections(model.graph, processing.detections)


class _Chain:
    """Nodes one behind the other, each with its constants."""

    def __init__(self, graph: ir.Graph, stem: str, value: ir.Value) -> None:
        self.graph, self.stem, self.value = graph, stem, value
        self.nodes: list[ir.Node] = []

    def constant(self, name: str, array: Array) -> ir.Value:
        return add_constant(self.graph, f"{self.stem}/{name}", array)

    def then(
        self, operator: str, others: Sequence[ir.Value | None] = (), attributes: Mapping[str, Attribute] = _NONE
    ) -> ir.Node:
        """An operator on what the last one computed; ``value`` is its first output."""
        count = 2 if operator == "TopK" else 1
        name = f"{self.stem}/{operator}"
        node = ir.node(operator, [self.value, *others], dict(attributes), num_outputs=count, name=name)
        for number, output in enumerate(node.outputs):
            output.name = f"{name}_{number}"
        self.nodes.append(node)
        self.value = node.outputs[0]
        return node


def _pictures(graph: ir.Graph, picture: Picture) -> None:
    """Bytes (N, H, W, C) → float → centre → the model's size → normalised; the input keeps its name."""
    (at, old) = next((at, each) for at, each in enumerate(graph.inputs) if each.name == picture.name)
    how, channels = picture.how, picture.channels
    batch = old.shape[0] if old.shape is not None else None
    new = ir.Value(
        name=picture.name,
        shape=ir.Shape([batch, how.height, how.width, channels]),
        type=ir.TensorType(ir.DataType.UINT8),
    )
    chain = _Chain(graph, f"{picture.name}/preprocess", new)
    chain.then("Cast", attributes={"to": int(ir.DataType.FLOAT)})
    if how.bgr:
        chain.then("Gather", [chain.constant("order", np.arange(channels)[::-1].copy())], {"axis": 3})
    top, left, height, width = how.cut
    if (height, width) != (how.height, how.width):
        ends = [top + height, left + width]
        bounds = {"starts": [top, left], "ends": ends, "axes": [1, 2]}
        chain.then("Slice", [chain.constant(name, np.array(value, np.int64)) for name, value in bounds.items()])
    resized = (height, width) != picture.size
    if picture.channels_first or resized:
        chain.then("Transpose", attributes={"perm": [0, 3, 1, 2]})
    if resized:
        # no sizes: those of two axes are newer than opset 17, and ONNX Runtime 1.31 fails to move a Transpose past them
        factors = [factor(old, new) for old, new in zip((height, width), picture.size, strict=True)]
        scales = chain.constant("scales", np.array([1, 1, *factors], np.float32))
        linear = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        chain.then("Resize", [None, scales], linear)
        if not picture.channels_first:
            chain.then("Transpose", attributes={"perm": [0, 2, 3, 1]})
    _normalise(chain, picture)
    old.replace_all_uses_with(chain.value, replace_graph_outputs=True)
    graph.inputs[at] = new
    if len(graph):
        graph.insert_before(graph[0], chain.nodes)
    else:
        graph.extend(chain.nodes)


def _normalise(chain: _Chain, picture: Picture) -> None:
    """``(x - mean) / std``, without what would change nothing."""
    along = (-1, 1, 1) if picture.channels_first else (-1,)
    mean, std = (np.array(each, np.float32).reshape(along) for each in (picture.how.mean, picture.how.std))
    if mean.any():
        chain.then("Sub", [chain.constant("mean", mean)])
    if (std != 1).any():
        chain.then("Mul", [chain.constant("scale", (1 / std.astype(np.float64)).astype(np.float32))])


def _choices(graph: ir.Graph, scores: Scores) -> None:
    """Softmax, ArgMax or TopK behind the output; a result that is alone keeps its name."""
    (at, old) = next((at, each) for at, each in enumerate(graph.outputs) if each.name == scores.name)
    chain = _Chain(graph, f"{scores.name}/postprocess", old)
    if scores.how.softmax:
        chain.then("Softmax", attributes={"axis": -1})
    results = [chain.value]
    if scores.how.choice == "argmax":
        results = list(chain.then("ArgMax", attributes={"axis": -1, "keepdims": 0}).outputs)
    elif scores.how.choice == "top":
        count = chain.constant("count", np.array([scores.how.top], np.int64))
        results = list(chain.then("TopK", [count], {"axis": -1}).outputs)
    old.name = f"{scores.name}/scores"
    for value, name in zip(results, scores.names, strict=True):
        value.name = name
        value.type = ir.TensorType(
            ir.DataType.FLOAT if value is results[0] and scores.how.choice != "argmax" else ir.DataType.INT64
        )
    graph.outputs[at : at + 1] = results
    graph.extend(chain.nodes)
