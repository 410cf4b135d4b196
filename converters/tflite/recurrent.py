"""Fused recurrent layers as ONNX LSTM and RNN; their state starts at zero on every call.

Source: ``tensorflow/lite/kernels/unidirectional_sequence_lstm.cc`` for the order of the inputs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tflite import schema
from convertkit.converters.tflite.builder import Attributes, Builder, Tensor
from convertkit.converters.tflite.model import ABSENT, TensorInfo
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

recurrent = Registry()

METADATA = "convertkit.tflite.unidirectional_sequence_lstm"
"""Node metadata: JSON of what QDQ cannot say about the fused kernel, for a target that has it."""

_INPUT_WEIGHTS = (1, 4, 2, 3)
_RECURRENT_WEIGHTS = (5, 8, 6, 7)
_PEEPHOLES = (9, 11, 10)
_BIASES = (12, 15, 13, 14)
"""Places of the gates' tensors in ONNX's order: input, output, forget, cell (peepholes have no cell)."""

_PROJECTION, _LAYER_NORM = (16, 17), (20, 21, 22, 23)
_OUTPUT_STATE, _CELL_STATE = 18, 19

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
    """What ONNX's LSTM lacks is refused, but for the cell's clip.

    Converters write ``cell_clip=10`` for every layer, trained without one; it changes nothing while
    cells stay within, and travels in the node's metadata.
    """
    slots = (*inputs, *(None,) * (24 - len(inputs)))
    if any(slots[place] is not None for place in (*_PROJECTION, *_LAYER_NORM)):
        raise Unsupported("projection or layer normalisation inside the cell")
    if fused_activation_function != schema.TANH or diagonal_recurrent_tensors:
        raise Unsupported(f"activation {fused_activation_function} or diagonal recurrent weights in the cell")
    gates = _Gates(b, slots)
    x, w, r = slots[0], gates.stacked(_INPUT_WEIGHTS), gates.stacked(_RECURRENT_WEIGHTS)
    if x is None or w is None or r is None:
        raise Unsupported("coupled input and forget gates")
    _refuse_overflow(b, w, place=0)
    _refuse_overflow(b, r, place=_OUTPUT_STATE)
    bias, peepholes = gates.bias(), gates.stacked(_PEEPHOLES)
    hidden = r.dims[-1]
    first = x if time_major else b.transpose(x, (1, 0, 2))
    values = [first, w, r, bias, None, None, None, peepholes]
    y = b.op("LSTM", values[: 8 if peepholes is not None else 4], {"hidden_size": hidden})
    _remember(b, y, cell_clip)
    flat = b.op("Squeeze", [y, b.constant([1])])
    return flat if time_major else b.transpose(flat, (1, 0, 2))


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

    def bias(self) -> Tensor:
        """Biases of the input weights; those of the recurrent weights, which ONNX adds as well, are zero."""
        parts = [self._real(part) for place in _BIASES if (part := self.slots[place]) is not None]
        if len(parts) < len(_BIASES):
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


def _remember(b: Builder, y: Tensor, cell_clip: float) -> None:
    node, op = y.value.producer(), b.operator
    assert node is not None
    assert op is not None
    places = [*op.inputs, *(ABSENT,) * (24 - len(op.inputs))]
    facts = {
        "cell_clip": cell_clip,
        "input_weights": [_parameters(b, places[place]) for place in _INPUT_WEIGHTS],
        "recurrent_weights": [_parameters(b, places[place]) for place in _RECURRENT_WEIGHTS],
        "biases": [_parameters(b, places[place]) for place in _BIASES],
        "output_state": _parameters(b, places[_OUTPUT_STATE]),
        "cell_state": _parameters(b, places[_CELL_STATE]),
        "intermediates": [_parameters(b, place) for place in op.intermediates],
    }
    node.metadata_props[METADATA] = json.dumps(facts)


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
