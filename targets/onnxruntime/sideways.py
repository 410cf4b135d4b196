"""Maps that are much higher than wide, computed lying on their side.

ONNX Runtime's float convolutions compute six outputs of a row together, and those whose window reaches over the border
one at a time.  Rows of 5 columns, as spectrograms end in, are half border; signals written as images one column wide
are computed output by output.  A part of the graph that works on both axes alike does the same on exchanged ones, with
exchanged weights; what enters it is transposed, what leaves it, too, unless it has one place alone.
Source of the rule: MLAS, ``MlasNchwcConv``.  Measured: ``bench/onnxruntime_sideways.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from convertkit.onnx.edit import array_of, drop_unused, initializer, inserted, is_float32, sizes
from convertkit.targets.onnxruntime.row_times import window_saving_ns

_EXCHANGED = (0, 1, 3, 2)
_ONE_MAP = frozenset({
    "AveragePool", "BatchNormalization", "Clip", "Conv", "Elu", "GlobalAveragePool", "GlobalMaxPool", "HardSigmoid",
    "HardSwish", "LeakyRelu", "MaxPool", "PRelu", "Relu", "Sigmoid", "Tanh",
})  # fmt: skip
"""Operators whose first input is a map; the others are weights, slopes, or bounds that are single numbers."""
_SEVERAL_MAPS = frozenset({"Add", "Concat", "Mul", "Sub"})
_BORDER_NS, _ELEMENT_NS = 500.0, 1.0
"""What a transposition costs."""
_CERTAIN = 2.0
"""How many times its transpositions' cost a part has to save, as what it saves is estimated."""


def lay_on_side(model: ir.Model) -> int:
    """Exchange height and width of float parts of the graph where that saves time, in place; returns how many.

    A graph with QuantizeLinear is left alone: ONNX Runtime fuses integers by what stands beside them.
    """
    nodes = tuple(model.graph)
    if any(node.op_type == "QuantizeLinear" for node in nodes):
        return 0
    laid = 0
    for part in _parts(nodes):
        borders = [*_entering(part), *_leaving(part)]
        cost = sum(_BORDER_NS + _ELEMENT_NS * _elements(value) for value in borders)
        if sum(map(window_saving_ns, part)) > max(_CERTAIN * cost, _BORDER_NS):
            _exchange(part)
            laid += 1
    if laid:
        drop_unused(model.graph)
    return laid


def _parts(nodes: tuple[ir.Node, ...]) -> list[dict[ir.Node, None]]:
    """What hangs together of nodes that work on height and width alike, in the order of the graph."""
    able = dict.fromkeys(node for node in nodes if _is_able(node))
    parts: list[dict[ir.Node, None]] = []
    placed: set[ir.Node] = set()
    for node in able:
        if node in placed:
            continue
        found, open_ = {node}, [node]
        while open_:
            for each in _beside(open_.pop()):
                if each in able and each not in found:
                    found.add(each)
                    open_.append(each)
        placed |= found
        parts.append({each: None for each in able if each in found})
    return parts


def _beside(node: ir.Node) -> Iterator[ir.Node]:
    """Those that make its maps, and those that read its output."""
    yield from (made for value in _maps(node) if (made := value.producer()) is not None)
    yield from (use.node for use in node.outputs[0].uses())


def _is_able(node: ir.Node) -> bool:
    """Whether a node works on height and width alike, both known, in float32."""
    if node.domain or node.op_type not in _ONE_MAP | _SEVERAL_MAPS or len(node.outputs) != 1:
        return False
    if not all(map(_is_map, (*_maps(node), node.outputs[0]))):
        return False
    if node.op_type == "Conv":
        return _weight(node) is not None
    if node.op_type == "BatchNormalization":
        return True  # what it reads beside the map is for each channel
    if node.op_type == "Concat":
        return node.attributes.get_int("axis", 1) in (1, -3)
    others = [value for value in node.inputs if value is not None and value not in _maps(node)]
    return all(_is_alike(value) for value in others)


def _maps(node: ir.Node) -> list[ir.Value]:
    values = [value for value in node.inputs if value is not None]
    return values[:1] if node.op_type in _ONE_MAP else [value for value in values if not _is_constant(value)]


def _is_constant(value: ir.Value) -> bool:
    return value.is_initializer() and value.const_value is not None and not value.is_graph_input()


def _is_map(value: ir.Value) -> bool:
    shape = sizes(value)
    return is_float32(value) and shape is not None and len(shape) == 4 and None not in shape[1:]


def _is_alike(value: ir.Value) -> bool:
    """Whether a constant is the same over height and width."""
    array = array_of(value) if _is_constant(value) else None
    return array is not None and (array.size == 1 or (array.ndim > 2 and array.shape[-2:] == (1, 1)))


def _weight(node: ir.Node) -> list[ir.Value] | None:
    """Constants of a convolution's weight, which no other node reads: itself, or what it is made real of; else None."""
    value = node.inputs[1]
    if value is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    maker = value.producer()
    constants = [value] if maker is None else [each for each in maker.inputs if each is not None]
    stored = maker is None or (maker.op_type == "DequantizeLinear" and not maker.domain)
    along = maker is None or maker.attributes.get_int("axis", 1) in (0, 1)
    return constants if stored and along and all(map(_is_constant, constants)) else None


def _place_count(value: ir.Value) -> int:
    shape = sizes(value)
    assert shape is not None
    return (shape[2] or 0) * (shape[3] or 0)


def _elements(value: ir.Value) -> float:
    """Of one sample."""
    shape = sizes(value)
    assert shape is not None
    return float((shape[1] or 1) * _place_count(value))


def _entering(part: dict[ir.Node, None]) -> list[ir.Value]:
    """Maps with more than one place that others make."""
    read = dict.fromkeys(value for node in part for value in _maps(node))
    return [value for value in read if value.producer() not in part and _place_count(value) > 1]


def _leaving(part: dict[ir.Node, None]) -> list[ir.Value]:
    """Maps with more than one place that others read."""
    made = [node.outputs[0] for node in part]
    outside = [value for value in made if value.is_graph_output() or any(u.node not in part for u in value.uses())]
    return [value for value in outside if _place_count(value) > 1]


def _exchange(part: dict[ir.Node, None]) -> None:
    for value in _entering(part):
        readers = {use.node for use in value.uses()} & set(part)
        first = next(node for node in part if node in readers)
        turned = _turned(first, value)
        for node in readers:
            for place, each in enumerate(node.inputs):
                if each is value:
                    node.replace_input_with(place, turned)
    for value in _leaving(part):
        _lead_back(value, part)
    for node in part:
        _exchange_node(node)


def _turned(before: ir.Node, value: ir.Value) -> ir.Value:
    """``value`` with height and width exchanged."""
    assert value.shape is not None
    shape = ir.Shape([value.shape[axis] for axis in _EXCHANGED])
    made = inserted(before, "Transpose", [value], value, {"perm": _EXCHANGED}, shape)
    made.name = made.outputs[0].name = f"{before.outputs[0].name}/{value.name}/Transpose"
    return made.outputs[0]


def _lead_back(value: ir.Value, part: dict[ir.Node, None]) -> None:
    """What others read of ``value`` gets its old name and layout."""
    node = value.producer()
    assert node is not None
    back = ir.node("Transpose", [value], {"perm": _EXCHANGED}, name=f"{value.name}/Transpose")
    result = back.outputs[0]
    result.shape, result.type = value.shape, value.type
    back.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_after(node, back)
    name = value.name
    inside = [(use.node, use.idx) for use in value.uses() if use.node in part]
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    for reader, place in [*inside, (back, 0)]:
        reader.replace_input_with(place, value)
    value.name, result.name = f"{name}/Transposed", name


def _exchange_node(node: ir.Node) -> None:
    for name in ("kernel_shape", "strides", "dilations"):
        if name in node.attributes:
            first, second = node.attributes.get_ints(name, ())
            node.attributes[name] = ir.AttrInt64s(name, (second, first))
    if "pads" in node.attributes:
        top, left, bottom, right = node.attributes.get_ints("pads", ())
        node.attributes["pads"] = ir.AttrInt64s("pads", (left, top, right, bottom))
    if node.op_type == "Conv":
        _exchange_weight(node)
    output = node.outputs[0]
    assert output.shape is not None
    output.shape = ir.Shape([output.shape[axis] for axis in _EXCHANGED])
    if _place_count(output) > 1 and not (output.name or "").endswith("/Transposed"):
        output.name = f"{output.name}/Transposed"


def _exchange_weight(node: ir.Node) -> None:
    weight = node.inputs[1]
    assert weight is not None
    maker = weight.producer()
    reader = node if maker is None else maker
    for place, value in enumerate(reader.inputs):
        array = array_of(value)
        if value is not None and array is not None and array.ndim == 4 and (maker is not None or place == 1):
            turned = initializer(reader, array.swapaxes(2, 3), f"{value.name}/Transposed")
            reader.replace_input_with(place, turned)
    if maker is not None and weight.shape is not None:
        weight.shape = ir.Shape([weight.shape[axis] for axis in _EXCHANGED])
