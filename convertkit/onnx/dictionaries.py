"""Dictionaries of scores by class, as ZipMap makes them, as the tensors that they are made of.

Only tensors cross an artifact's interface.  A ZipMap at a model's end is left out: its output keeps its name and is the
table of scores, (rows, classes).  :func:`columns` says which class each column stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from convertkit.artifact import Array
from convertkit.onnx.mapped import read_proto

Class = int | str
"""What a class is called."""
_KIND = "ZipMap"
_DOMAIN = "ai.onnx.ml"


def without_dictionaries(proto: onnx.ModelProto) -> None:
    """Put the table of scores in the place of each ZipMap that makes an output, in place."""
    graph = proto.graph
    outputs = {value.name: value for value in graph.output}
    for node in graph.node:
        if _makes_dictionaries(node) and node.output[0] in outputs:
            value, classes = outputs[node.output[0]], _classes(node)
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.dim.add()
            value.type.tensor_type.shape.dim.add().dim_value = len(classes)
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:]


def columns(path: Path) -> Mapping[str, tuple[Class, ...]]:
    """For each output of the file that holds dictionaries, its classes in the order of the scores' columns."""
    graph = read_proto(path).graph
    outputs = {value.name for value in graph.output}
    made = [node for node in graph.node if _makes_dictionaries(node) and node.output[0] in outputs]
    return {node.output[0]: _classes(node) for node in made}


def told(path: Path) -> tuple[str, ...]:
    """What the user is told of each output of the file that holds dictionaries."""
    return tuple(
        f"{name} holds dictionaries in the source and is a table here, its columns in this order: "
        f"{', '.join(map(str, classes))}"
        for name, classes in columns(path).items()
    )


def as_table(rows: Sequence[Mapping[Class, float]], classes: Sequence[Class]) -> Array:
    """What a ZipMap has made of (rows, classes) floats, as these."""
    return np.array([[row[name] for name in classes] for row in rows], np.float32).reshape(len(rows), len(classes))


def _makes_dictionaries(node: onnx.NodeProto) -> bool:
    return (node.op_type, node.domain) == (_KIND, _DOMAIN)


def _classes(node: onnx.NodeProto) -> tuple[Class, ...]:
    found = {each.name: each for each in node.attribute}
    if "classlabels_strings" in found and found["classlabels_strings"].strings:
        return tuple(text.decode("utf-8") for text in found["classlabels_strings"].strings)
    return tuple(found["classlabels_int64s"].ints) if "classlabels_int64s" in found else ()
