"""The LSTM cell of TFLite written out, for what ONNX's LSTM lacks.

Clipped cells, projections, layer normalisation, coupled gates, other activations.
Source: ``tensorflow/lite/kernels/lstm_eval.cc``, ``LstmStepFloat``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.converters.tflite.activations import fused
from convertkit.converters.tflite.builder import FREE, Builder, Tensor, onnx_dtype
from convertkit.converters.tflite.control import fresh
from convertkit.errors import SourceError, Unsupported

_NORM_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tensors of a cell stand among the operator's inputs: gates are input, output, forget, cell."""

    input_weights: tuple[int, ...]
    recurrent_weights: tuple[int, ...]
    peepholes: tuple[int, ...]
    biases: tuple[int, ...]
    projection: tuple[int, ...]
    layer_norm: tuple[int, ...]
    output_state: int
    cell_state: int

    def moved(self, by: int, cell_state: int) -> Places:
        """The cell of a bidirectional operator: no layer normalisation, states elsewhere."""
        return Places(
            tuple(place + by for place in self.input_weights),
            tuple(place + by for place in self.recurrent_weights),
            tuple(place + by for place in self.peepholes),
            tuple(place + by for place in self.biases),
            tuple(place + by for place in self.projection),
            (),
            cell_state - 1,
            cell_state,
        )


@dataclass(frozen=True, slots=True)
class _Gate:
    """One gate's constants; ``peephole`` and ``norm`` may be absent.  Coupled cells have no input gate."""

    r: Tensor
    bias: Tensor
    peephole: Tensor | None
    norm: Tensor | None


@dataclass(frozen=True, slots=True)
class _Cell:
    gates: tuple[_Gate | None, ...]
    activation: int
    projection: tuple[Tensor | None, ...]
    limits: tuple[float, float]


def written_out(
    b: Builder,
    x: Tensor,
    slots: tuple[Tensor | None, ...],
    places: Places,
    activation: int,
    limits: tuple[float, float],
) -> Tensor:
    """A Scan over ``x`` (time, batch, features) that gives (time, batch, outputs); states start at zero.

    ``limits`` clip the cell and the projection; 0 for no clip.
    """
    gates = tuple(_gate(b, slots, places, number) for number in range(4))
    if any(gate is None for gate in gates[1:]):
        raise SourceError("some of the gates have no weights")
    cell = _Cell(gates, activation, tuple(slots[place] for place in places.projection), limits)
    products = [_product(b, x, slots[place], gate) for place, gate in zip(places.input_weights, gates, strict=True)]
    given = [each for each in products if each is not None]
    weights = _required(slots[places.recurrent_weights[1]])
    units, width = weights.dims
    states = [_zeros(b, x, width), _zeros(b, x, units)]
    inner = b.nested()
    values = [_value(inner, x.dtype) for _ in (*states, *given)]
    h, c = _step(inner, cell, values[0], values[1], values[2:])
    outputs = fresh(inner, (h, c, h))
    body = ir.Graph([each.value for each in values], outputs, nodes=inner.nodes, name="cell")
    made = b.ops("Scan", [*states, *given], {"body": body, "num_scan_inputs": len(given)}, 3)
    return made[2]


def _gate(b: Builder, slots: tuple[Tensor | None, ...], places: Places, number: int) -> _Gate | None:
    """Gate ``number``; the cell's, which is the last, has no peephole."""
    r = slots[places.recurrent_weights[number]]
    if r is None or slots[places.input_weights[number]] is None:
        return None
    bias = _real(b, _required(slots[places.biases[number]]))
    peephole = slots[places.peepholes[number]] if number < 3 else None
    norm = slots[places.layer_norm[number]] if places.layer_norm else None
    return _Gate(b.constant(np.ascontiguousarray(r.known.T)), bias, peephole, norm)


def _product(b: Builder, x: Tensor, w: Tensor | None, gate: _Gate | None) -> Tensor | None:
    """The input's part of a gate for all steps.

    The bias is added inside: ONNX Runtime 1.31 cannot load products with a bias behind DequantizeLinear in three axes.
    """
    if w is None or gate is None:
        return None
    return b.op("MatMul", [x, b.constant(np.ascontiguousarray(w.known.T))])


def _step(b: Builder, cell: _Cell, h: Tensor, c: Tensor, products: list[Tensor]) -> tuple[Tensor, Tensor]:
    i_gate, o_gate, f_gate, c_gate = cell.gates
    assert o_gate is not None
    assert f_gate is not None
    assert c_gate is not None
    *first, o_in, f_in, c_in = products
    forget = b.op("Sigmoid", [_summed(b, f_gate, f_in, h, c)])
    if i_gate is not None:
        enter = b.op("Sigmoid", [_summed(b, i_gate, first[0], h, c)])
    else:
        enter = b.op("Sub", [b.scalar(1, c), forget])
    candidate = fused(b, _summed(b, c_gate, c_in, h, c), cell.activation)
    new = b.op("Add", [b.op("Mul", [forget, c]), b.op("Mul", [enter, candidate])])
    new = _clipped(b, new, cell.limits[0])
    out = b.op("Sigmoid", [_summed(b, o_gate, o_in, h, new)])
    result = b.op("Mul", [out, fused(b, new, cell.activation)])
    weights, bias = cell.projection
    if weights is not None:
        result = b.op("MatMul", [result, b.constant(np.ascontiguousarray(weights.known.T))])
        result = result if bias is None else b.op("Add", [result, _real(b, bias)])
        result = _clipped(b, result, cell.limits[1])
    return result, new


def _summed(b: Builder, gate: _Gate, product: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """What goes into a gate's activation."""
    total = b.op("Add", [product, b.op("MatMul", [h, gate.r])])
    if gate.peephole is not None:
        total = b.op("Add", [total, b.op("Mul", [c, b.constant(gate.peephole.known)])])
    if gate.norm is None:
        return b.op("Add", [total, gate.bias])
    norm = b.constant(gate.norm.known)
    return b.op("LayerNormalization", [total, norm, gate.bias], {"axis": -1, "epsilon": _NORM_EPSILON})


def _clipped(b: Builder, x: Tensor, limit: float) -> Tensor:
    return b.op("Clip", [x, b.scalar(-limit, x), b.scalar(limit, x)]) if limit > 0 else x


def _zeros(b: Builder, x: Tensor, width: int) -> Tensor:
    batch = x.dims[1]
    if batch != FREE:
        return b.constant(np.zeros((batch, width), np.float32))
    sizes = b.op(
        "Concat", [b.op("Shape", [x], {"start": 1, "end": 2}, dtype="int64"), b.constant([width])], {"axis": 0}
    )
    return b.op("Expand", [b.scalar(0, x), sizes])


def _value(b: Builder, dtype: str) -> Tensor:
    return Tensor(ir.Value(name=b.name(), type=ir.TensorType(onnx_dtype(dtype))), None, dtype)


def _real(b: Builder, x: Tensor) -> Tensor:
    """A bias or weight as a float constant."""
    if "float" not in x.dtype and x.quantization is not None:
        x = b.dequantize(x, x.quantization)
    if x.dtype != "float32" and x.stored is None:
        raise Unsupported(f"a {x.dtype} bias without a scale")
    return b.constant(x.known)


def _required(x: Tensor | None) -> Tensor:
    if x is None:
        raise SourceError("some of the gates have no weights or no bias")
    return x
