"""A model at another opset, by ONNX's version converter and what that does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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

_SAME = """Abs Add ArgMax ArgMin BatchNormalization Cast Ceil Clip Concat Constant CumSum DepthToSpace Div Equal Erf
Exp Expand Flatten Floor GRU Gather GatherElements GatherND Gemm Greater Identity IsNaN LSTM Less Log MatMul
Max Mean Min Mod Mul Neg NonZero Pad Pow RNN Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare Relu Reshape Resize ScatterElements ScatterND
Shape Sigmoid Sign Size Slice SpaceToDepth Sqrt Sub Sum Tanh Tile Transpose Where"""
"""Operators to which types and attributes alone were added since opset 11, as ONNX's converter does not always know."""
_VALUES = {
    "Pad": (19, "mode", ("wrap",)),
    "Resize": (19, "coordinate_transformation_mode", ("half_pixel_symmetric",)),
    "ScatterElements": (18, "reduction", ("max", "min")),
    "ScatterND": (18, "reduction", ("max", "min")),
}
"""Since which opset attributes may say more than before.  Source: ONNX operators' changelog."""
_ON_THE_WAY = 17
"""An opset at which a model is whole on its way to one before: the converter knows axes that became inputs later."""
_DOMAIN = "convertkit.kept"
_REASON = re.compile(r".*Assertion `.*` failed:? *", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What is said of a model that ``opset`` has no words for."""

    opset: int
    way_out: str

    def __call__(self, reason: str, node: ir.Node | None = None) -> Unsupported:
        subject = "" if node is None else f"{node.name or node.outputs[0].name} ({node.op_type})"
        said = f"the model cannot be expressed at opset {self.opset}: {reason}"
        return Unsupported(said, subject=subject, ways_out=(self.way_out,))


def at_opset(model: ir.Model, opset: int, way_out: str) -> ir.Model:
    """``model`` expressed at ``opset``; ``Unsupported`` with ``way_out`` where an operator has no exact counterpart."""
    newest = model.graph.opset_imports.get("", opset)
    if newest == opset:
        return model
    if opset < newest and write_out(model, opset):
        simplify(model)
    steps = (_ON_THE_WAY, opset) if opset < _ON_THE_WAY < newest else (opset,)
    for step in steps:
        model = _expressed(model, step, _Refusal(opset, way_out))
    return model


def _expressed(model: ir.Model, opset: int, refusal: _Refusal) -> ir.Model:
    """One step of the way."""
    newest = model.graph.opset_imports[""]
    kept = opset < newest and _older(model, opset, refusal)
    large = detached(model)
    try:
        converted: ir.Model = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except (onnx.version_converter.ConvertError, RuntimeError) as error:
        raise refusal(_REASON.sub("", str(error).strip()).splitlines()[0][:200]) from error
    reattach(converted, large)
    for node in converted.graph.all_nodes():
        if node.domain == _DOMAIN:
            node.domain, node.version = "", None
        if not node.domain and not defs.has(node.op_type, opset):
            raise refusal(f"it has no {node.op_type}", node)
        _drop_defaults(node, newest, opset, refusal)
    if kept:
        converted.graph.opset_imports.pop(_DOMAIN, None)
    return converted


def _older(model: ir.Model, opset: int, refusal: _Refusal) -> bool:
    """Write what the converter has no rule for as ``opset`` has it, and hide it from the converter; whether any was."""
    newest = model.graph.opset_imports[""]
    rules = {kind: rule for since, kinds in _RULES.items() if opset < since <= newest for kind, rule in kinds.items()}
    for node in _plain_nodes(model):
        rule = rules.get(node.op_type)
        if rule is not None and (reason := rule(node)):
            raise refusal(reason, node)
    same = _SAME.split()
    for node in _plain_nodes(model):
        _refuse_later_values(node, opset, refusal)
        _forget_zeros(node)
        if (node.op_type in rules and node.op_type not in same) or (node.op_type in same and is_older(node, opset)):
            node.domain, node.version = _DOMAIN, None
            model.graph.opset_imports[_DOMAIN] = 1
    return _DOMAIN in model.graph.opset_imports


def _plain_nodes(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph.all_nodes() if not node.domain]


def _refuse_later_values(node: ir.Node, opset: int, refusal: _Refusal) -> None:
    since, name, values = _VALUES.get(node.op_type, (0, "", ()))
    if opset < since and node.attributes.get_string(name, "") in values:
        raise refusal(f"it has no {name}={node.attributes.get_string(name)}", node)


def _cut_whole_shape(node: ir.Node) -> str:
    """A Shape of some axes is a Slice of the whole one.  Source: ONNX operators, Shape-13 and Shape-15."""
    start, end = node.attributes.pop("start", None), node.attributes.pop("end", None)
    graph, result = node.graph, node.outputs[0]
    if (start is None or start.as_int() == 0) and end is None:
        return ""
    assert graph is not None
    bounds = [0 if start is None else start.as_int(), np.iinfo(np.int64).max if end is None else end.as_int()]
    constants = [_row(each, f"{result.name}/{what}") for each, what in zip(bounds, ("start", "end"), strict=True)]
    cut = ir.node("Slice", [result, *(each.outputs[0] for each in constants)], name=f"{result.name}/cut")
    part, whole = cut.outputs[0], f"{result.name}/whole"
    part.type, part.shape = result.type, result.shape
    result.replace_all_uses_with(part, replace_graph_outputs=True)
    cut.replace_input_with(0, result)
    part.name, result.name, result.shape = result.name, whole, None
    graph.insert_after(node, [*constants, cut])
    return ""


def _row(number: int, name: str) -> ir.Node:
    """A node that holds one number, so that bodies of branches may have it, too."""
    node = ir.node("Constant", [], {"value": ir.tensor(np.array([number], np.int64), name=name)}, name=name)
    node.outputs[0].name, node.outputs[0].shape = name, ir.Shape([1])
    node.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    return node


def _give_all_inputs(node: ir.Node) -> str:
    """Regions and scales that are left out are empty.  Source: ONNX operators, Resize-11 and -13."""
    for place, what in ((1, "regions"), (2, "scales")):
        if node.inputs[place] is None:
            if not isinstance(node.graph, ir.Graph):
                return f"a Resize in a branch that leaves out {what}"
            name = f"{node.outputs[0].name}/{what}"
            node.replace_input_with(place, add_constant(node.graph, name, np.zeros(0, np.float32)))
    return ""


def _along_last(node: ir.Node) -> str:
    """A Softmax along the last axis, which changes places with its own.  Source: ONNX operators, Softmax-11 and -13."""
    value, result, graph = node.inputs[0], node.outputs[0], node.graph
    if value is None or value.shape is None or graph is None:
        return f"{node.op_type} of a value whose axes are not known"
    last, name = len(value.shape) - 1, result.name
    axis = node.attributes.get_int("axis", -1) % len(value.shape)
    node.attributes["axis"] = ir.AttrInt64("axis", last)
    if axis == last:
        return ""
    order = [*range(len(value.shape))]
    order[axis], order[last] = last, axis
    before, behind = (ir.node("Transpose", [each], {"perm": order}, name=f"{name}/{place}") for place, each in
                      (("turned", value), ("back", result)))  # fmt: skip
    for turned, like in ((before, value), (behind, result)):
        turned.outputs[0].type = like.type
    result.replace_all_uses_with(behind.outputs[0], replace_graph_outputs=True)
    behind.replace_input_with(0, result)
    node.replace_input_with(0, before.outputs[0])
    behind.outputs[0].shape, result.shape = result.shape, None
    behind.outputs[0].name, result.name, before.outputs[0].name = name, f"{name}/along_last", f"{name}/turned"
    graph.insert_before(node, before)
    graph.insert_after(node, behind)
    return ""


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


_RULES: Mapping[int, Mapping[str, Callable[[ir.Node], str]]] = {
    13: {
        "Hardmax": _along_last,
        "LogSoftmax": _along_last,
        "Resize": _give_all_inputs,
        "Softmax": _along_last,
    },
    15: {"Shape": _cut_whole_shape},
    18: {
        "ConstantOfShape": _as_it_is,
        "GlobalLpPool": _as_it_is,
        "GlobalMaxPool": _as_it_is,
        "GridSample": _grid_sample,
        "LpPool": _as_it_is,
        "Pad": _pad,
        "Split": _split,
    },
}
"""By opset and operator how it is written before, in place; each says why it cannot be, and nothing where it is."""


def _add_input(node: ir.Node, value: ir.Value) -> None:
    node.resize_inputs(len(node.inputs) + 1)
    node.replace_input_with(len(node.inputs) - 1, value)


def _drop_defaults(node: ir.Node, newest: int, opset: int, refusal: _Refusal) -> None:
    """Take out attributes that ``opset`` does not know and that say what it does anyway; the converter leaves some."""
    if node.domain or not defs.has(node.op_type, opset, ""):
        return
    known, stated = defs.get_schema(node.op_type, opset, "").attributes, defaults(node.op_type, newest)
    for name in [name for name in node.attributes if name not in known]:
        if not _says_nothing(node, name, stated):
            raise refusal(f"it has no {name}={node.attributes[name].value}", node)
        del node.attributes[name]


def _says_nothing(node: ir.Node, name: str, stated: Mapping[str, onnx.AttributeProto]) -> bool:
    """Whether an attribute has its default; dilations have one that no schema states."""
    value = node.attributes[name].value
    if name == "dilations":
        return all(each == 1 for each in value)
    return name in stated and ir.from_proto(stated[name]).value == value
