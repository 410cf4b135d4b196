"""Fused recurrent layers as ONNX LSTM and RNN; their state starts at zero on every call.

Source: ``tensorflow/lite/kernels/unidirectional_sequence_lstm.cc`` for the order of the inputs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tflite import schema
from convertkit.converters.tflite.builder import FREE, Attributes, Builder, Tensor
from convertkit.converters.tflite.cell import Places, written_out
from convertkit.converters.tflite.model import ABSENT, TensorInfo
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

recurrent = Registry()

METADATA = "convertkit.tflite.unidirectional_sequence_lstm"
"""Node metadata: JSON of what QDQ cannot say about the fused kernel, for a target that has it."""

_PLACES = Places((1, 4, 2, 3), (5, 8, 6, 7), (9, 11, 10), (12, 15, 13, 14), (16, 17), (20, 23, 21, 22), 18, 19)
"""Gates in ONNX's order: input, output, forget, cell (peepholes have no cell)."""

_REACH = 2.0**19
"""Gates' sums are int32 in steps of 2**-12: from here on the integer kernel overflows."""


@recurrent.reads("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions")
def unidirectional_sequence_lstm(
    b: Builder,
    *inputs: Tensor | None,
    fused_activation_function: int,
    cell_clip: float,
    proj_clip: float,
    time_major: bool,
    diagonal_recurrent_tensors: bool,
) -> Tensor:
    """ONNX's LSTM where it computes the same, else the cell written out in a Scan."""
    slots = (*inputs, *(None,) * (24 - len(inputs)))
    if diagonal_recurrent_tensors:
        raise Unsupported("diagonal recurrent weights in the cell")
    places = _PLACES
    limits = (_cell_limit(b, cell_clip, places.cell_state), proj_clip)
    first = _time_first(b, slots[0], time_major)
    y = _layer(b, first, slots, places, fused_activation_function, limits)
    node = y.value.producer()
    assert node is not None
    node.metadata_props[METADATA] = json.dumps(_facts(b, cell_clip, time_major))
    flat = b.op("Squeeze", [y, b.constant([1])]) if node.op_type == "LSTM" else y
    return flat if time_major else b.transpose(flat, (1, 0, 2))


@recurrent.reads("BIDIRECTIONAL_SEQUENCE_LSTM", "BidirectionalSequenceLSTMOptions")
def bidirectional_sequence_lstm(
    b: Builder,
    *inputs: Tensor | None,
    fused_activation_function: int,
    cell_clip: float,
    proj_clip: float,
    merge_outputs: bool,
    time_major: bool,
) -> Tensor | tuple[Tensor, ...]:
    """Two layers, one of which reads and writes backwards."""
    slots = (*inputs, *(None,) * (48 - len(inputs)))
    if any(slot is not None for slot in slots[39:48]):
        raise Unsupported("an auxiliary input")
    first = _time_first(b, slots[0], time_major)
    results = []
    for number, state in enumerate((36, 38)):
        places = _PLACES.moved(17 * number, state)
        limits = (_cell_limit(b, cell_clip, state), proj_clip)
        read = _backwards(b, first) if number else first
        y = _layer(b, read, slots, places, fused_activation_function, limits)
        node = y.value.producer()
        flat = b.op("Squeeze", [y, b.constant([1])]) if node is not None and node.op_type == "LSTM" else y
        flat = _backwards(b, flat) if number else flat
        results.append(flat if time_major else b.transpose(flat, (1, 0, 2)))
    return b.op("Concat", results, {"axis": -1}) if merge_outputs else tuple(results)


def _time_first(b: Builder, x: Tensor | None, time_major: bool) -> Tensor:
    if x is None:
        raise SourceError("the layer has no input")
    return x if time_major else b.transpose(x, (1, 0, 2))


def _backwards(b: Builder, x: Tensor) -> Tensor:
    bounds = [b.constant([each]) for each in (-1, np.iinfo(np.int64).min, 0, -1)]
    return replace(b.op("Slice", [x, *bounds]), shape=x.shape)


def _cell_limit(b: Builder, cell_clip: float, place: int) -> float:
    """What cells are clipped to, 0 for nothing; 16-bit cells end where their integers do."""
    assert b.operator is not None
    index = b.operator.inputs[place] if place < len(b.operator.inputs) else ABSENT
    info = None if index == ABSENT else b.tensors[index]
    if info is None or info.dtype != "int16" or info.quantization is None:
        return cell_clip
    end = float(info.quantization.scale[0]) * np.iinfo(np.int16).max
    return min(cell_clip, end) if cell_clip > 0 else end


def _layer(
    b: Builder,
    x: Tensor,
    slots: tuple[Tensor | None, ...],
    places: Places,
    activation: int,
    limits: tuple[float, float],
) -> Tensor:
    """One direction over ``x`` (time, batch, features): an LSTM's four axes, or a Scan's three.

    A cell grows by at most one with each step, so up to as many steps as its limit no clip can act.
    """
    gates = _Gates(b, slots)
    w, r = gates.stacked(places.input_weights), gates.stacked(places.recurrent_weights)
    special = any(slots[place] is not None for place in (*places.projection, *places.layer_norm))
    never_clipped = limits[0] <= 0 or FREE != x.dims[0] <= limits[0]
    if w is not None and r is not None:
        _refuse_overflow(b, w, place=0)
        _refuse_overflow(b, r, place=places.output_state)
    if w is None or r is None or special or activation != schema.TANH or not never_clipped:
        return written_out(b, x, slots, places, activation, limits)
    bias, peepholes = gates.bias(places.biases), gates.stacked(places.peepholes)
    values = [x, w, r, bias, None, None, None, peepholes]
    return b.op("LSTM", values[: 8 if peepholes is not None else 4], {"hidden_size": r.dims[-1]})


@recurrent.reads("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions")
def unidirectional_sequence_rnn(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor,
    state: Tensor | None = None,
    *,
    time_major: bool,
    fused_activation_function: int,
) -> Tensor:
    names = {schema.TANH: "Tanh", schema.RELU: "Relu"}
    if fused_activation_function not in names:
        raise Unsupported(f"activation {fused_activation_function} in the cell")
    both = np.concatenate([bias.known, np.zeros_like(bias.known)])[None]
    weights = [b.op("Unsqueeze", [each, b.constant([0])]) for each in (w, r)]
    first = x if time_major else b.transpose(x, (1, 0, 2))
    attributes: Attributes = {"hidden_size": r.dims[-1], "activations": [names[fused_activation_function]]}
    y = b.op("RNN", [first, *weights, b.constant(both)], attributes)
    flat = b.op("Squeeze", [y, b.constant([1])])
    return flat if time_major else b.transpose(flat, (1, 0, 2))


@dataclass(frozen=True, slots=True)
class _Gates:
    """The gates' tensors of one cell, stacked as ONNX wants them: one direction, gates along axis 1.

    Real numbers even for integer cells, because no LSTM kernel outside TFLite takes integers; the
    scales travel in the node's metadata, and dividing by them gives the integers back exactly.
    """

    builder: Builder
    slots: tuple[Tensor | None, ...]

    def stacked(self, places: tuple[int, ...]) -> Tensor | None:
        """The tensors at ``places`` as one; None where the first is absent."""
        parts = [self.slots[place] for place in places]
        present = [part for part in parts if part is not None]
        if len(present) < len(parts):
            if len(present) > 0 and parts[0] is not None:
                raise SourceError("some of the gates have no weights")
            return None
        return self.builder.constant(np.concatenate([part.known for part in present])[None])

    def bias(self, places: tuple[int, ...]) -> Tensor:
        """Biases of the input weights; those of the recurrent weights, which ONNX adds as well, are zero."""
        parts = [self._real(part) for place in places if (part := self.slots[place]) is not None]
        if len(parts) < len(places):
            raise SourceError("some of the gates have no bias")
        values = np.concatenate(parts)
        return self.builder.constant(np.concatenate([values, np.zeros_like(values)])[None])

    def _real(self, bias: Tensor) -> Array:
        if "float" in bias.dtype or bias.quantization is None:
            return bias.known
        return self.builder.dequantize(bias, bias.quantization).known


def _refuse_overflow(b: Builder, weights: Tensor, place: int) -> None:
    """Weights by which the integer tensor at ``place`` can drive a gate's int32 sum over its end."""
    assert b.operator is not None
    info = b.tensors[b.operator.inputs[place]]
    if info.dtype != "int8" or info.quantization is None:
        return
    scale, zero_point = float(info.quantization.scale[0]), int(info.quantization.zero_point[0])
    greatest = scale * max(127 - zero_point, 128 + zero_point)
    if not float(np.abs(weights.known).sum(-1, dtype=np.float64).max()) * greatest < _REACH:
        raise SourceError("weights of the cell are so large that its integer kernel overflows")


def _facts(b: Builder, cell_clip: float, time_major: bool) -> dict[str, object]:
    """What QDQ cannot say about the fused kernel."""
    op = b.operator
    assert op is not None
    slots = [*op.inputs, *(ABSENT,) * (24 - len(op.inputs))]
    return {
        "cell_clip": cell_clip,
        "time_major": time_major,
        "input_weights": [_parameters(b, slots[place]) for place in _PLACES.input_weights],
        "recurrent_weights": [_parameters(b, slots[place]) for place in _PLACES.recurrent_weights],
        "biases": [_parameters(b, slots[place]) for place in _PLACES.biases],
        "output_state": _parameters(b, slots[_PLACES.output_state]),
        "cell_state": _parameters(b, slots[_PLACES.cell_state]),
        "intermediates": [_parameters(b, place) for place in op.intermediates],
    }


def _parameters(b: Builder, index: int) -> dict[str, object] | None:
    if index == ABSENT:
        return None
    info: TensorInfo = b.tensors[index]
    quantization = info.quantization
    if quantization is None:
        return {"dtype": info.dtype}
    return {
        "dtype": info.dtype,
        "scale": float(quantization.scale[0]),
        "zero_point": int(quantization.zero_point[0]),
    }
