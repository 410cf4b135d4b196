"""``fft``: one ONNX ``DFT`` per transformed axis, complex numbers as a last axis of two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import dtype_of, ints, is_complex, shape_of, text
from convertkit.converters.stablehlo.ops.dot import zeros
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import F32, Complex, Operand, Shape, Tensor, constant, static
from convertkit.errors import Unsupported
from convertkit.onnx.edit import add_constant

fourier = Handlers()

_AS_MATRIX = 256
_AXIS_AS_INPUT = 20
"""The opset from which a DFT reads its axis."""


@fourier.complex
def fft(b: Builder, op: hlo.FftOp, x: Operand) -> Operand:
    kind, lengths = text(op.fft_type), ints(op.fft_length)
    first = x.rank - len(lengths)
    axes = list(range(first, x.rank))
    if 0 in x.shape:
        return _nothing(op)
    if kind == "RFFT":
        assert isinstance(x, Tensor)
        whole = transformed(b, Complex(x, zeros(b, x)), axes, inverse=False)
        kept = lengths[-1] // 2 + 1
        return Complex(b.take(whole.re, x.rank - 1, 0, kept), b.take(whole.im, x.rank - 1, 0, kept))
    assert isinstance(x, Complex)
    if kind == "IRFFT":
        return _real_inverse(b, x, axes, lengths)
    return transformed(b, x, axes, inverse=kind == "IFFT")


def _nothing(op: hlo.FftOp) -> Operand:
    kind = op.result.type
    empty = constant(np.zeros(static(shape_of(kind)), dtype_of(kind).numpy()))
    return Complex(empty, empty) if is_complex(kind) else empty


def _real_inverse(b: Builder, x: Complex, axes: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The missing half of the last axis is the conjugate of the half that is there."""
    outer = transformed(b, x, axes[:-1], inverse=True)
    last, length = axes[-1], lengths[-1]
    count = length // 2 + 1
    have = [b.take(part, last, 0, count) for part in (outer.re, outer.im)]
    # The imaginary parts of the mean and of the Nyquist frequency do not count.
    mirrored = [b.reverse(b.take(part, last, 1, (length + 1) // 2), [last]) for part in have]
    re = b.concat([have[0], mirrored[0]], last)
    im = b.concat([have[1], b.neg(mirrored[1])], last)
    silent = np.ones(length, re.dtype.numpy())
    silent[0] = 0
    if length % 2 == 0:
        silent[length // 2] = 0
    im = b.where(constant(silent.astype(bool)), im, 0.0)
    return transformed(b, Complex(re, im), [last], inverse=True).re


def transformed(b: Builder, x: Complex, axes: Sequence[int], *, inverse: bool) -> Complex:
    """The discrete Fourier transform along each axis; the inverse is scaled by the length."""
    rank = x.rank
    stacked = b.concat([b.unsqueeze(b.full(part), [rank]) for part in (x.re, x.im)], rank)
    for axis in axes:
        length = _length(x.shape, axis)
        if x.dtype == F32 and length & (length - 1) and length <= _AS_MATRIX:
            stacked = _multiplied(b, stacked, axis, inverse)
            continue
        attributes = {"axis": axis, "inverse": int(inverse), "onesided": 0}
        stacked = b.op("DFT", [stacked], stacked.shape, stacked.dtype, attributes)
    return Complex(b.gather(stacked, 0, rank), b.gather(stacked, 1, rank))


def _multiplied(b: Builder, stacked: Tensor, axis: int, inverse: bool) -> Tensor:
    """The transform along one axis as a product with its matrix, real and imaginary parts interleaved.

    For lengths that are not powers of two the kernel of DFT loses three digits of float32.
    """
    length, rank = _length(stacked.shape, axis), stacked.rank
    order = [place for place in range(rank - 1) if place != axis] + [axis, rank - 1]
    moved = b.transpose(stacked, order)
    angle = 2 * np.pi * (np.outer(np.arange(length), np.arange(length)) % length) / length
    cos, sin = np.cos(angle), np.sin(-angle if inverse else angle)
    # Axes: element and part of the input, element and part of the output.
    matrix = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    matrix = (matrix / (length if inverse else 1)).reshape(2 * length, 2 * length).astype(np.float32)
    outer = [b.size(moved, place) for place in range(moved.rank - 2)]
    flat = b.reshape(moved, (*moved.shape[:-2], 2 * length), b.sizes([*outer, 2 * length]))
    product = b.op("MatMul", [flat, constant(matrix)], flat.shape, F32)
    return b.transpose(b.reshape(product, moved.shape, b.sizes([*outer, length, 2])), list(np.argsort(order)))


def _length(shape: Shape, axis: int) -> int:
    length = shape[axis]
    if length is None:
        raise Unsupported(f"a Fourier transform along the dynamic axis {axis}")
    return length


def restate_axes(model: ir.Model) -> None:
    """Give each DFT its axis as an input, in place, where an operator beside it needs an opset that has it so."""
    if model.graph.opset_imports[""] < _AXIS_AS_INPUT:
        return
    for node in model.graph.all_nodes():
        if node.op_type == "DFT":
            axis = node.attributes.pop("axis").as_int()
            node.resize_inputs(3)
            node.replace_input_with(2, add_constant(model.graph, f"{node.outputs[0].name}_axis", np.array(axis)))
