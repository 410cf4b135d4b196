"""An ONNX graph as a function of PyTorch with weights that can be trained.

Float weights are trained as they are, zeros that pruning made stay zero.  Weights behind a DequantizeLinear are trained
as the real numbers that are rounded to its integers in every step, so that what is trained is what the graph computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from convertkit.artifact import Array
from convertkit.onnx.walk import check, walk
from convertkit.quantization.graph.sparse import Places
from convertkit.quantization.graph.units import is_float
from convertkit.torch_graph.operators import TABLE, rounded
from convertkit.torch_graph.recurrent import RECURRENT

_TRAINED = {
    "Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (0, 1), "Add": (0, 1),
    "LayerNormalization": (1, 2), "InstanceNormalization": (1, 2), "BatchNormalization": (1, 2),
    "LSTM": (1, 2, 3), "GRU": (1, 2, 3), "RNN": (1, 2, 3),
}  # fmt: skip
"""Which inputs of which operators are weights, where they are constant."""
_BIAS = 3
"""Of a recurrent layer: of two axes, and often half zeros that no pruning made."""
_NEEDS = "--recover"


@dataclass(frozen=True, slots=True)
class Grid:
    """Integers of a stored weight: steps and zero points broadcast to its shape, and the limits that it keeps."""

    step: Tensor
    zero: Tensor
    low: float
    high: float

    def integers(self, real: Tensor) -> Tensor:
        """The nearest integers, as float numbers."""
        return torch.clamp(rounded(real / self.step) + self.zero, self.low, self.high)

    def real(self, integers: Tensor) -> Tensor:
        """What the integers stand for."""
        return (integers - self.zero) * self.step


@dataclass(frozen=True, slots=True)
class Weight:
    """One initializer that is trained: ``made`` is the value that the graph computes with."""

    stored: ir.Value
    made: ir.Value
    real: Tensor
    mask: Tensor | None
    grid: Grid | None

    def used(self) -> Tensor:
        """The weight as the graph computes with it."""
        real = self.real if self.mask is None else self.real * self.mask
        return real if self.grid is None else self.grid.real(self.grid.integers(real))

    def array(self) -> Array:
        """What the initializer holds, integers as int32."""
        with torch.no_grad():
            real = self.real if self.mask is None else self.real * self.mask
            if self.grid is None:
                return np.asarray(real.numpy().copy())
            return np.asarray(self.grid.integers(real).numpy().astype(np.int32))


class Network:
    """A graph, its constants, and where it has them its weights; of those at the places of ``zeros`` these stay."""

    def __init__(self, model: ir.Model, zeros: Places = frozenset()) -> None:
        graph = model.graph
        check(graph, TABLE, _NEEDS)
        self.graph = graph
        self.weights = _weights(graph, zeros)
        taken = {weight.stored for weight in self.weights if weight.grid is not None}
        self._constants = {
            value: _tensor(value) for value in graph.initializers.values() if value not in taken
        }  # fmt: skip
        self._inputs = [value for value in graph.inputs if value not in self._constants]
        self.values = {str(value.name): value for node in graph for value in node.outputs}

    def __call__(self, samples: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
        """The named values for all samples, (samples, …); ``samples`` holds every input, (samples, …)."""
        used = {weight.made: weight.used() for weight in self.weights}

        def one(given: dict[str, Tensor]) -> list[Tensor]:
            values = {**self._constants, **used, **{value: given[str(value.name)] for value in self._inputs}}
            found = walk(self.graph, TABLE, values)
            return [found[self.values[name]] for name in names]

        made: list[Tensor] = torch.vmap(one)(dict(samples))
        return made


def _tensor(value: ir.Value) -> Tensor:
    assert value.const_value is not None
    array = value.const_value.numpy()
    plain = array.astype(np.int8) if value.const_value.dtype.bitwidth < 8 else array
    return torch.from_numpy(np.array(plain))


def _weights(graph: ir.Graph, zeros: Places) -> tuple[Weight, ...]:
    found: dict[ir.Value, Weight] = {}
    for node in graph:
        for place in () if node.domain else _TRAINED.get(node.op_type, ()):
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is None or value in found:
                continue
            kept = (str(node.name), place) in zeros and not (node.op_type in RECURRENT and place == _BIAS)
            if value.const_value is not None and is_float(value):
                if value.const_value.size > 1:
                    found[value] = _plain(value, kept)
            elif (weight := _stored(value, kept)) is not None:
                found[value] = weight
    return tuple(found.values())


def _plain(value: ir.Value, keep_zeros: bool) -> Weight:
    real = _tensor(value)
    return Weight(value, value, real.requires_grad_(), _mask(real, keep_zeros), None)


def _mask(real: Tensor, keep_zeros: bool) -> Tensor | None:
    return (real.detach() != 0).to(torch.float32) if keep_zeros and real.ndim > 1 else None


def _stored(value: ir.Value, keep_zeros: bool) -> Weight | None:
    """A weight of integers behind DequantizeLinear, else None."""
    node = value.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.domain:
        return None
    stored, scale, *others = node.inputs
    if stored is None or scale is None or stored.const_value is None or scale.const_value is None:
        return None
    integers = _tensor(stored).to(torch.float32)
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)
    step = _spread(_tensor(scale), integers, axis, block)
    zero = torch.zeros(()) if not others or others[0] is None else _tensor(others[0]).to(torch.float32)
    shift = _spread(zero, integers, axis, block)
    limits = _limits(stored)
    low = max(limits[0], -limits[1]) if limits[0] < 0 and float(integers.min()) > limits[0] else limits[0]
    grid = Grid(step, shift, low, limits[1])
    real = grid.real(integers)
    return Weight(stored, value, real.requires_grad_(), _mask(real, keep_zeros), grid)


def _limits(stored: ir.Value) -> tuple[float, float]:
    assert stored.const_value is not None
    dtype = stored.const_value.dtype
    bits, signed = int(dtype.bitwidth), not dtype.name.startswith("U")
    return (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if signed else (0.0, 2.0**bits - 1)


def _spread(vector: Tensor, like: Tensor, axis: int, block: int) -> Tensor:
    if vector.numel() == 1:
        return vector.reshape(()).expand(like.shape)
    if block:
        wide = vector.repeat_interleave(block, axis)
        return wide.narrow(axis, 0, like.shape[axis])
    return vector.reshape([-1 if i == axis % like.ndim else 1 for i in range(like.ndim)]).expand(like.shape)
