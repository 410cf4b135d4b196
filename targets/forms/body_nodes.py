"""The nodes of a function body while it grows, and what is known of the operands of the node that it is for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from convertkit.artifact import Array
from convertkit.errors import Unsupported


class Nodes:
    """Collects the nodes of a body; every method appends one and returns its result's name."""

    def __init__(self, node: ir.Node) -> None:
        self.inputs = [f"x{place}" for place in range(len(node.inputs))]
        self.list: list[onnx.NodeProto] = []

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Append an operator."""
        name = f"v{len(self.list)}"
        made = helper.make_node(kind, inputs, [name])
        for key, value in (metadata or {}).items():
            made.metadata_props.add(key=key, value=value)
        for key, attribute in (attributes or {}).items():
            made.attribute.append(helper.make_attribute(key, attribute))
        self.list.append(made)
        return name

    def constant(self, value: Array) -> str:
        """Append a constant."""
        return self.op("Constant", [], {"value": numpy_helper.from_array(np.asarray(value))})

    def cast(self, x: str, to: int) -> str:
        """Append a cast."""
        return self.op("Cast", [x], {"to": to})


def is_given(node: ir.Node, place: int) -> bool:
    """Whether the node has an input there."""
    return len(node.inputs) > place and node.inputs[place] is not None


def is_constant(node: ir.Node, place: int) -> bool:
    """Whether the input there is known now."""
    value = node.inputs[place]
    return value is not None and value.const_value is not None


def size_of(node: ir.Node, place: int) -> int | None:
    """How many elements an input has, None where that is not known."""
    value = node.inputs[place]
    shape = None if value is None else value.shape
    sizes = [None] if shape is None else [size if isinstance(size, int) else None for size in shape]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def constant_of(node: ir.Node, place: int) -> Array:
    """The numbers of the input there; ``Unsupported`` where they are only known at run time."""
    value = node.inputs[place]
    if value is None or value.const_value is None:
        raise Unsupported(
            "scales, zero points or weights that are computed at run time",
            subject=f"{node.name} ({node.op_type})",
            ways_out=("convert the float model with --w8: activations are then quantized on the fly",),
        )
    return value.const_value.numpy()
