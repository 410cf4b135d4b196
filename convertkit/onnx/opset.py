"""A model at another opset, by ONNX's version converter and what that does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir
from onnx import defs

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import detached, reattach, simplify
from convertkit.onnx.edit import add_constant
from convertkit.onnx.function_bodies import defaults
from convertkit.onnx.newer import is_older, write_out

_NEWER = 18
"""From which opset on the operators of ``_OLDER`` are written otherwise than before."""
_SAME = frozenset(["Add", "Sub", "Mul", "Div", "Identity", "Pow", "Relu", "Reshape", "Shape"])
"""Operators of which ONNX's converter does not know that only types and attributes were added."""
_DOMAIN = "convertkit.kept"
_REASON = re.compile(r".*Assertion `.*` failed:? *", re.DOTALL)


def at_opset(model: ir.Model, opset: int, way_out: str) -> ir.Model:
    """``model`` expressed at ``opset``; ``Unsupported`` with ``way_out`` where an operator has no exact counterpart."""
    newest = model.graph.opset_imports.get("", opset)
    if newest == opset:
        return model
    if opset < newest and write_out(model, opset):
        simplify(model)
    kept = opset < newest and _older(model, opset, way_out)
    large = detached(model)
    try:
        converted: ir.Model = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except (onnx.version_converter.ConvertError, RuntimeError) as error:
        reason = _REASON.sub("", str(error).strip()).splitlines()[0][:200]
        raise Unsupported(f"the model cannot be expressed at opset {opset}: {reason}", ways_out=(way_out,)) from error
    reattach(converted, large)
    for node in converted.graph.all_nodes():
        if node.domain == _DOMAIN:
            node.domain, node.version = "", None
        if not node.domain and not defs.has(node.op_type, opset):
            raise Unsupported(
                f"the model cannot be expressed at opset {opset}: it has no {node.op_type}",
                subject=f"{node.name or node.outputs[0].name} ({node.op_type})",
                ways_out=(way_out,),
            )
        _drop_defaults(node, newest, opset, way_out)
    if kept:
        converted.graph.opset_imports.pop(_DOMAIN, None)
    return converted


def _older(model: ir.Model, opset: int, way_out: str) -> bool:
    """Write what the converter has no rule for as ``opset`` has it, and hide it from the converter; whether any was."""
    nodes = [node for node in model.graph.all_nodes() if not node.domain]
    for node in nodes:
        _forget_zeros(node)
    rewritten = [node for node in nodes if node.op_type in _OLDER and opset < _NEWER]
    found = [*rewritten, *(node for node in nodes if node.op_type in _SAME and is_older(node, opset))]
    for node in rewritten:
        if reason := _OLDER[node.op_type](node):
            raise Unsupported(
                f"the model cannot be expressed at opset {opset}: {reason}",
                subject=f"{node.name or node.outputs[0].name} ({node.op_type})",
                ways_out=(way_out,),
            )
    for node in found:
        node.domain, node.version = _DOMAIN, None
    if found:
        model.graph.opset_imports[_DOMAIN] = 1
    return bool(found)


def _forget_zeros(node: ir.Node) -> None:
    """Take what a Reshape says of sizes of 0 from one that has none."""
    sizes = node.inputs[1].const_value if node.op_type == "Reshape" and node.inputs[1] is not None else None
    if sizes is not None and (sizes.numpy() != 0).all():
        node.attributes.pop("allowzero", None)


def _split(node: ir.Node) -> str:
    """Parts that are named by their sizes, or equal ones.  Source: ONNX operators, Split-13 and Split-18."""
    parts = node.attributes.pop("num_outputs", None)
    if parts is None:
        return ""
    value, axis = node.inputs[0], node.attributes.get_int("axis", 0)
    size = None if value is None or value.shape is None else value.shape[axis]
    if not isinstance(size, int) or not isinstance(node.graph, ir.Graph):
        return "num_outputs along an axis whose size is not known"
    each = -(-size // parts.as_int())
    if each * parts.as_int() != size:
        sizes = np.diff(np.minimum(np.arange(parts.as_int() + 1) * each, size))
        _add_input(node, add_constant(node.graph, f"{node.outputs[0].name}/sizes", sizes.astype(np.int64)))
    return ""


def _pad(node: ir.Node) -> str:
    """Pads of all axes.  Source: ONNX operators, Pad-13 and Pad-18."""
    if node.attributes.get_string("mode", "constant") == "wrap":
        return "mode=wrap"
    value, pads, _, axes = (*node.inputs, None, None, None)[:4]
    if axes is None:
        return ""
    known = value is not None and value.shape is not None and isinstance(node.graph, ir.Graph)
    if not known or pads is None or pads.const_value is None or axes.const_value is None:
        return "pads of some axes that are not constants"
    assert value is not None
    assert value.shape is not None
    assert isinstance(node.graph, ir.Graph)
    rows = np.zeros((2, len(value.shape)), np.int64)
    rows[:, axes.const_value.numpy()] = pads.const_value.numpy().reshape(2, -1)
    node.replace_input_with(1, add_constant(node.graph, f"{node.outputs[0].name}/pads", rows.reshape(-1)))
    node.resize_inputs(3)
    return ""


def _grid_sample(node: ir.Node) -> str:
    """Its modes had other names, and volumes none.  Source: ONNX operators, GridSample-16 and GridSample-20."""
    value, mode = node.inputs[0], node.attributes.get_string("mode", "linear")
    if value is None or value.shape is None or len(value.shape) != 4:
        return "GridSample of other than images"
    node.attributes["mode"] = ir.AttrString("mode", {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode))
    return ""


def _as_it_is(node: ir.Node) -> str:
    """Newer attributes are looked at afterwards."""
    return ""


_OLDER: Mapping[str, Callable[[ir.Node], str]] = {
    "ConstantOfShape": _as_it_is,
    "GlobalLpPool": _as_it_is,
    "GlobalMaxPool": _as_it_is,
    "GridSample": _grid_sample,
    "LpPool": _as_it_is,
    "Pad": _pad,
    "Split": _split,
}
"""By operator how it is written before opset 18, in place; each says why it cannot be, and nothing where it is."""


def _add_input(node: ir.Node, value: ir.Value) -> None:
    node.resize_inputs(len(node.inputs) + 1)
    node.replace_input_with(len(node.inputs) - 1, value)


def _drop_defaults(node: ir.Node, newest: int, opset: int, way_out: str) -> None:
    """Take out attributes that ``opset`` does not know and that say what it does anyway; the converter leaves some."""
    if node.domain or not defs.has(node.op_type, opset, ""):
        return
    known, stated = defs.get_schema(node.op_type, opset, "").attributes, defaults(node.op_type, newest)
    for name in [name for name in node.attributes if name not in known]:
        if not _says_nothing(node, name, stated):
            raise Unsupported(
                f"the model cannot be expressed at opset {opset}: it has no {name}={node.attributes[name].value}",
                subject=f"{node.name or node.outputs[0].name} ({node.op_type})",
                ways_out=(way_out,),
            )
        del node.attributes[name]


def _says_nothing(node: ir.Node, name: str, stated: Mapping[str, onnx.AttributeProto]) -> bool:
    """Whether an attribute has its default; dilations have one that no schema states."""
    value = node.attributes[name].value
    if name == "dilations":
        return all(each == 1 for each in value)
    return name in stated and ir.from_proto(stated[name]).value == value
