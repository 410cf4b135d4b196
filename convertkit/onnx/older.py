"""What opsets before 13 say differently and ONNX's version converter gets wrong or does not know.

``to_seven`` writes opsets 1 to 6 as opset 7: attributes that later became defaults, renames, and the ``axis`` by
which two operands were broadcast.  ``state_meanings``, ``sampled_as_before`` and ``numbers_as_data`` stand around the
converter: the first spells out what it would lose, the others repair what it forgets.
Source of each rule: the schemas of the two versions (ONNX operators' changelog).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, defs
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.edit import initializer
from convertkit.onnx.ml import state_models

SEVEN = 7
_COMPARES = frozenset({"And", "Or", "Xor", "Less", "Greater", "Equal"})
_BROADCAST = _COMPARES | {"Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Gemm"}
_TRAINS = frozenset({"BatchNormalization", "Dropout"})
"""What computes as in training before opset 7, unless ``is_test`` is set."""
_GONE = ("consumed_inputs", "is_test", "broadcast", "output_sequence")


def to_seven(model: ir.Model) -> None:
    """Write a model of opset 1 to 6 as one of opset 7, in place; ``Unsupported`` names what has no counterpart."""
    opset = model.graph.opset_imports[""]
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if not node.domain:
                _rewrite(graph, node, opset)
    model.graph.opset_imports[""] = SEVEN
    _tell_shapes(model)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in [node for node in graph if node.op_type in _BROADCAST and not node.domain]:
            _align(model, graph, node)


def _rewrite(graph: ir.Graph, node: ir.Node, opset: int) -> None:
    title = f"{node.name or node.op_type} ({node.op_type}-{opset})"
    if not defs.has(node.op_type, SEVEN, ""):
        raise Unsupported("an experimental operator, which ONNX has taken back", subject=title)
    if node.op_type == "Tile" and opset < 6:
        raise Unsupported("Tile of opset 1 repeats along one axis that is an input", subject=title)
    if node.op_type in _TRAINS and not node.attributes.get_int("is_test", 0):
        way = "a file whose is_test is 1, as exporters write it for inference"
        raise Unsupported("is_test is 0 or missing: it computes as in training", subject=title, ways_out=(way,))
    for name in _GONE:
        node.attributes.pop(name, None)
    since, rewrite = _REWRITES.get(node.op_type, (0, None))
    if rewrite is not None and opset < since:
        rewrite(graph, node)


def _cast(graph: ir.Graph, node: ir.Node) -> None:
    to = node.attributes["to"]
    if to.type == ir.AttributeType.STRING:
        node.attributes["to"] = ir.AttrInt64("to", TensorProto.DataType.Value(to.as_string().upper()))


def _concat(graph: ir.Graph, node: ir.Node) -> None:
    _default(node, ir.AttrInt64("axis", 1))


def _pad(graph: ir.Graph, node: ir.Node) -> None:
    if "paddings" in node.attributes:
        node.attributes["pads"] = ir.AttrInt64s("pads", node.attributes.pop("paddings").as_ints())


def _selu(graph: ir.Graph, node: ir.Node) -> None:
    _default(node, ir.AttrFloat32("alpha", 1.6732))
    _default(node, ir.AttrFloat32("gamma", 1.0507))


def _reshape(graph: ir.Graph, node: ir.Node) -> None:
    if "shape" in node.attributes:
        sizes = np.array(node.attributes.pop("shape").as_ints(), np.int64)
        node.resize_inputs(2)
        node.replace_input_with(1, _constant(graph, node, sizes))


def _split(graph: ir.Graph, node: ir.Node) -> None:
    _default(node, ir.AttrInt64("axis", 0))
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        sizes = node.inputs[1].const_value
        if sizes is None:
            raise Unsupported("sizes of parts that are computed", subject=f"{node.name} (Split-1)")
        node.attributes["split"] = ir.AttrInt64s("split", [int(size) for size in sizes.numpy()])
        node.resize_inputs(1)


def _upsample(graph: ir.Graph, node: ir.Node) -> None:
    if "height_scale" in node.attributes:
        factors = [node.attributes.pop(f"{side}_scale").as_float() for side in ("height", "width")]
        node.attributes["scales"] = ir.AttrFloat32s("scales", [1.0, 1.0, *factors])


def _whole_p(graph: ir.Graph, node: ir.Node) -> None:
    power = node.attributes.get("p")
    if power is not None and power.type == ir.AttributeType.FLOAT:
        if not power.as_float().is_integer():
            raise Unsupported(f"p {power.as_float()}: later opsets have whole numbers", subject=str(node.name))
        node.attributes["p"] = ir.AttrInt64("p", int(power.as_float()))


_REWRITES: Mapping[str, tuple[int, Callable[[ir.Graph, ir.Node], None]]] = {
    "Cast": (6, _cast),
    "Concat": (4, _concat),
    "GlobalLpPool": (2, _whole_p),
    "LpPool": (2, _whole_p),
    "Pad": (2, _pad),
    "Reshape": (5, _reshape),
    "Selu": (6, _selu),
    "Split": (2, _split),
    "Upsample": (7, _upsample),
}
"""Per operator the opset that changed it, and how to say the same in that one."""


def _default(node: ir.Node, attribute: ir.Attr) -> None:
    if attribute.name not in node.attributes:
        node.attributes[attribute.name] = attribute


def _constant(graph: ir.Graph, node: ir.Node, array: np.ndarray) -> ir.Value:
    made = ir.node("Constant", [], {"value": ir.tensor(array)}, name=f"{node.name}/constant")
    graph.insert_before(node, made)
    return made.outputs[0]


def _tell_shapes(model: ir.Model) -> None:
    """Give values the types and shapes that the file does not tell, in place.

    What ``axis`` broadcasts is not valid yet and would end the inference.  Its result has the first operand's shape,
    and so a copy of the model has that operand in its place.
    """
    plain = model.clone()
    for node in plain.graph.all_nodes():
        if node.op_type in _BROADCAST and not node.domain and "axis" in node.attributes:
            compares = node.op_type in _COMPARES
            node.op_type = "Cast" if compares else "Identity"
            node.attributes.clear()
            if compares:
                node.attributes["to"] = ir.AttrInt64("to", TensorProto.BOOL)
            node.resize_inputs(1)
    state_models(plain)
    ShapeInferencePass(check_type=False, strict_mode=False)(plain)
    for node, known in zip(model.graph.all_nodes(), plain.graph.all_nodes(), strict=True):
        for value, inferred in zip(node.outputs, known.outputs, strict=True):
            if value.shape is None:
                value.shape, value.type = inferred.shape, value.type or inferred.type


def _align(model: ir.Model, graph: ir.Graph, node: ir.Node) -> None:
    """The second operand with axes behind its own, so that it meets the first where ``axis`` said.

    Without ``axis`` it met the last ones, as it does today; the slope of PRelu met the channels.
    """
    axis = node.attributes.pop("axis", None)
    if axis is None and node.op_type != "PRelu":
        return
    second = _rank(model, node, 1)
    if node.op_type == "PRelu" and (second != 1 or _is_single(node.inputs[1])):
        return
    first = _rank(model, node, 0)
    start = 1 if axis is None else axis.as_int()
    behind = first - (start + first if start < 0 else start) - second
    if axis is not None and not 0 <= behind <= first - second:
        raise Unsupported(
            f"axis {start} does not fit: the operands have {first} and {second} axes",
            subject=f"{node.name or node.op_type} ({node.op_type})",
        )
    if behind > 0:
        places = list(range(second, second + behind))
        made = ir.node("Unsqueeze", [node.inputs[1]], {"axes": places}, name=f"{node.name}/aligned")
        graph.insert_before(node, made)
        node.replace_input_with(1, made.outputs[0])


def _is_single(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and tuple(value.shape) == (1,)


def _rank(model: ir.Model, node: ir.Node, place: int) -> int:
    value = node.inputs[place]
    assert value is not None
    if value.shape is None and value.const_value is None:
        ShapeInferencePass()(model)
    if value.shape is not None:
        return len(value.shape)
    if value.const_value is not None:
        return int(value.const_value.numpy().ndim)
    raise Unsupported(
        f"broadcast along an axis of {value.name}, whose rank is unknown", subject=f"{node.name} ({node.op_type})"
    )


def state_meanings(model: ir.Model) -> None:
    """Spell out, in place, what operators before opset 13 mean and the converter takes for their later meaning."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if node.domain:
                continue
            if node.op_type == "Hardmax":
                _flat_hardmax(graph, node)
            elif node.op_type == "BatchNormalization" and node.attributes.get_int("spatial", 1) == 0:
                _norm_of_activations(model, graph, node)
            elif node.op_type == "Dropout":
                _refuse_mask(node, model.graph.opset_imports[""])


def _flat_hardmax(graph: ir.Graph, node: ir.Node) -> None:
    """``Hardmax`` over everything from ``axis`` on: of a matrix, in the shape that it had."""
    axis = node.attributes.get("axis")
    sizes = ir.node("Shape", [node.inputs[0]], name=f"{node.name}/sizes")
    start = 1 if axis is None else axis.as_int()
    rows = ir.node("Flatten", [node.inputs[0]], {"axis": start}, name=f"{node.name}/rows")
    ones = ir.node("Hardmax", [rows.outputs[0]], {"axis": 1}, name=f"{node.name}/of_rows")
    graph.insert_before(node, (sizes, rows, ones))
    node.op_type = "Reshape"
    node.attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, ones.outputs[0])
    node.replace_input_with(1, sizes.outputs[0])


def _norm_of_activations(model: ir.Model, graph: ir.Graph, node: ir.Node) -> None:
    """``BatchNormalization`` of opset 7 with ``spatial`` 0: every element of a sample has a mean of its own."""
    title = f"{node.name or node.op_type} (BatchNormalization-{model.graph.opset_imports['']})"
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        raise Unsupported("spatial=0 with statistics of its own batch: no later opset has it", subject=title)
    ranks = {_rank(model, node, place) for place in range(1, 5)}
    if ranks == {1} and _rank(model, node, 0) != 2:
        raise Unsupported("spatial=0 with one mean for each channel: say spatial=1", subject=title)
    x, scale, bias, mean, variance = node.inputs
    kind = variance.dtype.numpy() if variance is not None and variance.dtype is not None else np.float32
    epsilon = _constant(graph, node, np.array(node.attributes.get_float("epsilon", 1e-5), kind))
    shifted = ir.node("Sub", [x, mean], name=f"{node.name}/shifted")
    wider = ir.node("Add", [variance, epsilon], name=f"{node.name}/wider")
    root = ir.node("Sqrt", wider.outputs, name=f"{node.name}/root")
    unit = ir.node("Div", [shifted.outputs[0], root.outputs[0]], name=f"{node.name}/unit")
    scaled = ir.node("Mul", [unit.outputs[0], scale], name=f"{node.name}/scaled")
    graph.insert_before(node, (shifted, wider, root, unit, scaled))
    node.op_type = "Add"
    node.attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, scaled.outputs[0])
    node.replace_input_with(1, bias)
    node.resize_outputs(1)


def _refuse_mask(node: ir.Node, opset: int) -> None:
    masks = node.outputs[1:]
    if opset < 12 and any(mask.uses() or mask.is_graph_output() for mask in masks):
        raise Unsupported(
            "its mask is used, of which opsets before 12 do not say what it is",
            subject=f"{node.name} (Dropout-{opset})",
        )


def sampled_as_before(model: ir.Model) -> None:
    """Give Resize, in place, the coordinates that Upsample, and Resize before opset 11, had: ``x / scale``.

    Nearest is the element before where it grows, the one behind where it shrinks, as ONNX Runtime defined it.
    """
    for node in model.graph.all_nodes():
        if node.op_type != "Resize" or node.domain:
            continue
        scales = node.inputs[2].const_value if len(node.inputs) > 2 and node.inputs[2] is not None else None
        factors = np.ones(1) if scales is None else scales.numpy()
        if (factors < 1).any() and (factors > 1).any() and node.attributes.get_string("mode", "nearest") == "nearest":
            raise Unsupported(
                "nearest elements of axes that shrink and axes that grow; opset 11 rounds all alike",
                subject=f"{node.name} (Resize-10)",
            )
        node.attributes["coordinate_transformation_mode"] = ir.AttrString(
            "coordinate_transformation_mode", "asymmetric"
        )
        rounding = "ceil" if (factors < 1).any() else "floor"
        node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", rounding)


_NUMBERS = {"Clip": (1, 2), "Pad": (2,)}
"""Inputs that were attributes of float32 before opset 11."""


def numbers_as_data(model: ir.Model) -> None:
    """Give bounds and fillings, in place, the type of the data: the converter leaves those of float16 float32."""
    nodes = [node for node in model.graph.all_nodes() if node.op_type in _NUMBERS and not node.domain]
    if any(node.inputs[0] is not None and node.inputs[0].dtype is None for node in nodes):
        _tell_shapes(model)
    for node in nodes:
        kind = None if node.inputs[0] is None else node.inputs[0].dtype
        for place in _NUMBERS[node.op_type]:
            number = node.inputs[place] if place < len(node.inputs) else None
            held = None if number is None else _held(number)
            if kind is None or number is None or held is None or held.dtype == kind.numpy():
                continue
            with np.errstate(over="ignore"):  # a bound that float16 does not reach is infinite
                typed = held.astype(kind.numpy())
            node.replace_input_with(place, initializer(node, typed, f"{number.name}/{kind.name.lower()}"))


def _held(value: ir.Value) -> Array | None:
    """What a value holds that is stored, or made by a Constant."""
    stored = ir.convenience.get_const_tensor(value)
    return None if stored is None else stored.numpy()
