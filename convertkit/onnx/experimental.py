"""Operators that ONNX had for a trial and took back, and that ONNX Runtime still executes, in operators that stayed.

Converters from Core ML wrote them up to opset 8: the first nodes of style transfer and of object detection.
Source: ``onnxruntime/core/providers/cpu/tensor/{affine_grid,crop,image_scaler}``, ``…/activation/activations``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from convertkit.artifact import Array
from convertkit.onnx.group_norms import node_lists

_BROADCASTS_SINCE, _UNTIL = 7, 10
_TO_THE_END = np.iinfo(np.int32).max


def write_out_experimental(proto: onnx.ModelProto, opset: int) -> None:
    """Write what :data:`_RULES` names in ONNX's own domain as operators of the same ``opset``, in place.

    From opset 10 on ONNX Runtime has none of them either, and a file that holds one is broken.
    """
    if opset >= _UNTIL:
        return
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for each in node_lists(nodes):
            for place in reversed([place for place, node in enumerate(each) if _is_known(node)]):
                made = _Written(each[place], opset)
                _RULES[each.pop(place).op_type](made)
                for new in reversed(made.nodes):
                    each.insert(place, new)


def _is_known(node: onnx.NodeProto) -> bool:
    if node.op_type not in _RULES or node.domain or not len(node.input) == len(node.output) == 1:
        return False
    return not any(attribute.ref_attr_name for attribute in node.attribute) and _is_whole(node)


def _is_whole(node: onnx.NodeProto) -> bool:
    """Whether a node states what ONNX Runtime asks of it."""
    stated = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type == "Crop":
        return len(stated.get("border", ())) == 4 and len(stated.get("scale", ())) in (0, 2)
    needed = {"ImageScaler": {"bias"}, "ScaledTanh": {"alpha", "beta"}, "ParametricSoftplus": {"alpha", "beta"}}
    return needed.get(node.op_type, set()) <= stated.keys()


class _Written:
    """Collects the nodes that replace ``node``; the last one gives its result."""

    def __init__(self, node: onnx.NodeProto, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.x, self._result, self._name = node.input[0], node.output[0], node.name or node.op_type
        self._stated = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}

    def real(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self._stated.get(name, default))

    def numbers(self, name: str) -> list[float]:
        """A list attribute, empty where the node does not state it."""
        return list(self._stated.get(name, ()))

    def constant(self, array: Array) -> str:
        name = self._new("Constant")
        value = numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.nodes.append(helper.make_node("Constant", [], [name], name, value=value))
        return name

    def op(self, kind: str, *inputs: str, last: bool = False, **attributes: object) -> str:
        name = self._new(kind)
        result = self._result if last else name
        self.nodes.append(helper.make_node(kind, list(inputs), [result], name, **attributes))
        return result

    def with_number(self, kind: str, x: str, number: float, *, last: bool = False) -> str:
        """``x`` and one number, by an operator that broadcasts in the way of the opset."""
        same = {} if self.opset >= _BROADCASTS_SINCE else {"broadcast": 1}
        return self.op(kind, x, self.constant(np.array(number, np.float32)), last=last, **same)

    def with_channels(self, kind: str, x: str, numbers: list[float]) -> None:
        """The result: an image and a number for each of its channels."""
        values = np.array(numbers, np.float32)
        if self.opset >= _BROADCASTS_SINCE:
            self.op(kind, x, self.constant(values.reshape(-1, 1, 1)), last=True)
        else:
            self.op(kind, x, self.constant(values), last=True, broadcast=1, axis=1)

    def _new(self, kind: str) -> str:
        return f"{self._result}/{self._name}/{kind}_{len(self.nodes)}"


def _affine(w: _Written) -> None:
    w.with_number("Add", w.with_number("Mul", w.x, w.real("alpha", 1.0)), w.real("beta", 0.0), last=True)


def _image_scaler(w: _Written) -> None:
    """``x * scale + bias``, the bias by channels."""
    w.with_channels("Add", w.with_number("Mul", w.x, w.real("scale", 1.0)), w.numbers("bias"))


def _crop(w: _Written) -> None:
    """``border`` is left, top, right and bottom; ``scale``, the height and width that stay, replaces the last two."""
    left, top, right, bottom = (int(each) for each in w.numbers("border"))
    sizes = [int(each) for each in w.numbers("scale")]
    ends = [_TO_THE_END if not each else -each for each in (bottom, right)]
    if sizes:
        ends = [top + sizes[0], left + sizes[1]]
    w.op("Slice", w.x, last=True, axes=[2, 3], starts=[top, left], ends=ends)


def _parametric_softplus(w: _Written) -> None:
    bent = w.op("Softplus", w.with_number("Mul", w.x, w.real("beta", 1.0)))
    w.with_number("Mul", bent, w.real("alpha", 1.0), last=True)


def _scaled_tanh(w: _Written) -> None:
    bent = w.op("Tanh", w.with_number("Mul", w.x, w.real("beta", 1.0)))
    w.with_number("Mul", bent, w.real("alpha", 1.0), last=True)


def _scale(w: _Written) -> None:
    w.with_number("Mul", w.x, w.real("scale", 1.0), last=True)


_RULES: Mapping[str, Callable[[_Written], None]] = {
    "Affine": _affine,
    "Crop": _crop,
    "ImageScaler": _image_scaler,
    "ParametricSoftplus": _parametric_softplus,
    "Scale": _scale,
    "ScaledTanh": _scaled_tanh,
}
