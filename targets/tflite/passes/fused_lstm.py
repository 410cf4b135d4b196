"""An integer LSTM that was read from a TFLite file becomes the fused kernel again, bit by bit.

before:  x:i8 → Dequantize → LSTM, or its cell in a Scan → Quantize → y:i8
after:   x:i8 → FusedLSTM → y:i8

QDQ cannot say what the kernel computes in (a 16-bit cell state, a scale for each gate); the importer leaves it in the
node's metadata.  A layer whose weights are no longer exactly those integers stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, bypass, only_user
from convertkit.targets.forms.edits import drop_if_unused, new_constant, typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.tensor import QuantParams

METADATA = "convertkit.tflite.unidirectional_sequence_lstm"
"""Key of the node metadata that ``converters/tflite`` writes: JSON, gates in ONNX's order."""

_SWAP = (1, 0, 2)
_ROUNDING = 1e-3
"""How far a real weight may be from an integer step: float32 divides and multiplies again."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer: its float input and output, and real constants of its gates (input, output, forget, cell)."""

    x: ir.Value
    y: ir.Value
    weights: tuple[Array, ...]
    recurrence: tuple[Array, ...]
    biases: tuple[Array, ...]


def fuse_lstm(part: Part) -> None:
    """Fuse every layer that kept its integers, in place."""
    for node in list(part.graph):
        if METADATA not in node.metadata_props or node.domain != "":
            continue
        layer = _of_lstm(node) if node.op_type == "LSTM" else _of_scan(node) if node.op_type == "Scan" else None
        if layer is not None:
            _fuse(part.graph, node, layer)


def _fuse(graph: ir.Graph, node: ir.Node, layer: _Layer) -> None:
    before, behind = layer.x.producer(), only_user(layer.y)
    facts = json.loads(node.metadata_props[METADATA])
    if not (_is_own(before, "Dequantize") and _is_own(behind, "Quantize")):
        return
    assert before is not None
    assert behind is not None
    x, result = before.inputs[0], behind.outputs[0]
    integers = _integers(layer, facts)
    if x is None or integers is None or not _fits(x, result, facts):
        return
    params, shape, moved = quantization_of(result), result.shape, _swapped(x, result)
    if moved is not None:
        x, behind, shape = moved.inputs[0], only_user(result), _moved_shape(result)
    assert behind is not None
    assert params is not None
    constants = [new_constant(graph, f"{node.name}/{key}", value) for key, value in integers.items()]
    facts["time_major"] = moved is None
    made = ir.node("FusedLSTM", [x, *constants], {"facts": json.dumps(facts)}, domain=OWN, name=node.name)
    set_source(made, node)
    made.outputs[0].name = f"{result.name}/fused"
    typed(made.outputs[0], shape, ir.DataType.INT8)
    set_quantization(made.outputs[0], params)
    graph.insert_after(behind, made)
    bypass(behind, made.outputs[0])
    for each in reversed(list(graph)):
        drop_if_unused(each)


def _is_own(node: ir.Node | None, name: str) -> bool:
    return node is not None and node.domain == OWN and node.op_type == name


def _fits(x: ir.Value, result: ir.Value, facts: dict[str, object]) -> bool:
    """Whether the integers around the layer are the kernel's, in sizes that are known."""
    params = quantization_of(result)
    state, cell, intermediates = (facts.get(name) for name in ("output_state", "cell_state", "intermediates"))
    known = isinstance(state, dict) and isinstance(cell, dict) and isinstance(intermediates, list)
    if not known or params is None or x.dtype != ir.DataType.INT8 or result.dtype != ir.DataType.INT8:
        return False
    assert isinstance(state, dict)
    assert isinstance(cell, dict)
    assert isinstance(intermediates, list)
    same = params == QuantParams.per_tensor(state.get("scale", 0.0), state.get("zero_point", 0))
    static = x.shape is not None and all(isinstance(size, int) for size in x.shape)
    return same and static and cell.get("dtype") == "int16" and len(intermediates) == 5


def _swapped(x: ir.Value, result: ir.Value) -> ir.Node | None:
    """The swap of batch and time in front, where the same swap stands behind."""
    before, behind = x.producer(), only_user(result)
    if before is None or behind is None or before.op_type != "Transpose" or behind.op_type != "Transpose":
        return None
    perms = [node.attributes.get("perm") for node in (before, behind)]
    return before if all(perm is not None and tuple(perm.value) == _SWAP for perm in perms) else None


def _moved_shape(result: ir.Value) -> ir.Shape | None:
    return None if result.shape is None else ir.Shape([result.shape[axis] for axis in _SWAP])


def _of_lstm(node: ir.Node) -> _Layer | None:
    """One direction without peepholes, all of whose outputs go on."""
    inputs = [*node.inputs, *(None,) * (8 - len(node.inputs))]
    arrays = [array_of(value) for value in inputs[1:4]]
    squeeze = only_user(node.outputs[0])
    if inputs[7] is not None or any(each is None for each in arrays) or squeeze is None or inputs[0] is None:
        return None
    if squeeze.op_type != "Squeeze":
        return None
    w, r, bias = (each[0] for each in arrays if each is not None)
    own, recurrent = np.split(bias, 2)
    if recurrent.any():
        return None
    parts = [tuple(np.split(each, 4)) for each in (w, r, own)]
    return _Layer(inputs[0], squeeze.outputs[0], parts[0], parts[1], parts[2])


def _of_scan(node: ir.Node) -> _Layer | None:
    """A cell written out: products with all steps outside, those with the state inside."""
    body = node.attributes["body"].as_graph()
    if len(node.inputs) != 6 or any(each.op_type in ("LayerNormalization", "Loop", "If") for each in body):
        return None
    if sum(each.op_type == "MatMul" for each in body) != 4:  # a projection has another
        return None
    outside = [found for value in node.inputs[2:] if (found := _product(value)) is not None]
    inside = [gate for value in body.inputs[2:] if (gate := _gate(value, body.inputs[0])) is not None]
    if len(outside) != 4 or len(inside) != 4 or len({id(x) for x, _ in outside}) != 1:
        return None
    weights, recurrence = tuple(w for _, w in outside), tuple(r for r, _ in inside)
    biases = tuple(bias for _, bias in inside)
    return _Layer(outside[0][0], node.outputs[2], weights, recurrence, biases)


def _product(value: ir.Value | None) -> tuple[ir.Value, Array] | None:
    """``x`` and the weights of ``x @ w.T``."""
    product = None if value is None else value.producer()
    if product is None or product.op_type != "MatMul" or product.inputs[0] is None:
        return None
    w = array_of(product.inputs[1])
    return None if w is None else (product.inputs[0], w.T)


def _gate(value: ir.Value, state: ir.Value) -> tuple[Array, Array] | None:
    """Recurrent weights and bias of the gate that ``value`` goes into; None where a peephole does too."""
    add = only_user(value)
    if add is None or add.op_type != "Add" or add.inputs[1] is None:
        return None
    product, behind = add.inputs[1].producer(), only_user(add.outputs[0])
    if product is None or product.op_type != "MatMul" or product.inputs[0] is not state:
        return None
    if behind is None or behind.op_type != "Add":
        return None
    w, bias = array_of(product.inputs[1]), array_of(behind.inputs[1])
    return None if w is None or bias is None else (w.T, bias)


def _integers(layer: _Layer, facts: dict[str, object]) -> dict[str, Array] | None:
    """The gates' constants as the kernel stores them, None where one is not exactly integers of its scale."""
    found = {}
    for key, gates, kind in (
        ("input_weights", layer.weights, np.int8),
        ("recurrent_weights", layer.recurrence, np.int8),
        ("biases", layer.biases, np.int32),
    ):
        scales = list(_scales(facts.get(key), np.dtype(kind).name))
        if len(scales) != len(gates):
            return None
        steps = [gate.astype(np.float64) / scale for gate, scale in zip(gates, scales, strict=True)]
        if not _whole(steps, kind):
            return None
        found[key] = np.stack([np.rint(each).astype(kind) for each in steps])
    return found


def _scales(parameters: object, dtype: str) -> Iterator[float]:
    for each in parameters if isinstance(parameters, list) else []:
        if isinstance(each, dict) and each.get("dtype") == dtype and not each.get("zero_point") and each.get("scale"):
            yield float(each["scale"])


def _whole(steps: Sequence[Array], kind: type[np.int8 | np.int32]) -> bool:
    limits = np.iinfo(kind)
    for each in steps:
        whole, size = np.rint(each), np.abs(each).max()
        if np.abs(each - whole).max() > _ROUNDING * max(1.0, size * _ROUNDING):
            return False
        if not limits.min <= whole.min() <= whole.max() <= limits.max:
            return False
    return True
