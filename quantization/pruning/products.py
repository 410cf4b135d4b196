"""The weights that pruning treats, each as matrices, with the inputs that they are multiplied with.

Convolutions as their patches, depthwise and grouped ones by groups, transposed ones by input channels, matrix
products, and the two weights of LSTM, GRU and RNN.  What is too wide for one moment matrix is treated in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.profile import RECURRENT, OpRule, QuantProfile
from convertkit.quantization.graph.sparse import mark_pruned
from convertkit.quantization.graph.units import Unit, constant, find_units, is_constant, is_float
from convertkit.quantization.weights.patches import MOST_COLUMNS, columns_of, is_product, weight_rows

_PRODUCTS = QuantProfile(
    "weights", "int8", False, {op: OpRule({1: 0}, bias=2, data=(0,)) for op in ("Conv", "Gemm")}
    | {"MatMul": OpRule({1: -1}, data=(0,))},
)  # fmt: skip
_INPUT, _STATE = 1, 2
"""Where LSTM, GRU and RNN have the weight of their input and that of their state."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One weight: input ``index`` of ``node``, multiplied with ``value``.

    ``taps`` columns belong to one input channel; columns are split into ``blocks`` that are treated apart.
    """

    node: ir.Node
    index: int
    value: ir.Value
    taps: int = 1
    blocks: int = 1
    unit: Unit | None = None

    @property
    def name(self) -> str:
        """The node's, with the weight's letter for the two of a recurrent layer."""
        name = self.node.name or str(self.node.outputs[0].name)
        return f"{name}.{'WR'[self.index - 1]}" if self.node.op_type in RECURRENT else name

    @property
    def bias(self) -> tuple[ir.Node, int] | None:
        """The node and input index of a bias that can make up for the mean, where there is one."""
        return None if self.unit is None else self.unit.bias

    @property
    def output(self) -> str | None:
        """The value that holds what the rows make at every position, where one does."""
        return str(self.node.outputs[0].name) if self.unit is not None and self.blocks == 1 else None

    @property
    def size(self) -> int:
        """Number of weights."""
        return int(self._array.size)

    @property
    def rows(self) -> Array:
        """The weight as (parts, rows, columns), float64: part by part ``y = W x``, parts of one group added up."""
        return self._in_blocks(self._whole())

    @property
    def split(self) -> int:
        """Columns of one part."""
        return int(self._whole().shape[2]) // self.blocks

    @property
    def _array(self) -> Array:
        value = self.node.inputs[self.index]
        assert value is not None
        return constant(value)

    def store(self, rows: Array) -> None:
        """Replace the weight; its zeros are marked as what pruning made."""
        whole = self._from_blocks(rows)
        array, graph, value = self._array, self.node.graph, self.node.inputs[self.index]
        assert isinstance(graph, ir.Graph)
        assert value is not None
        if self.node.op_type == "MatMul":
            made = whole[0].T
        elif self.node.op_type == "ConvTranspose":
            made = whole.transpose(0, 2, 1).reshape(array.shape)
        else:
            made = whole.reshape(array.shape)
        name = str(value.name).removesuffix("_pruned")
        made = np.ascontiguousarray(made.astype(np.float32))
        mark_pruned(self.node, self.index)
        self.node.replace_input_with(self.index, add_constant(graph, f"{name}_pruned", made))

    def columns(self, array: Array, share: int, rng: np.random.Generator) -> Array:
        """At most ``share`` inputs of the product, (parts, positions, columns), float32."""
        if self.unit is not None:
            found = columns_of(self.unit, array, share, rng)
            if self.blocks == 1:
                return found
            return np.ascontiguousarray(found[0].reshape(found.shape[1], self.blocks, -1).transpose(1, 0, 2))
        if self.node.op_type in RECURRENT:
            return self._recurrent(array, share, rng)
        groups = self.node.attributes.get_int("group", 1)
        flat = np.moveaxis(array, 1, -1).reshape(-1, groups, array.shape[1] // groups)
        return np.ascontiguousarray(_some(flat, share, rng).transpose(1, 0, 2))

    def weights(self, gradient: Array, share: int, rng: np.random.Generator) -> Array:
        """Of each output at the same places, (parts, positions, rows), where ``rng`` starts as for the columns."""
        groups = self.node.attributes.get_int("group", 1) if self.node.op_type == "Conv" else 1
        last = np.moveaxis(gradient, 1, -1) if self.node.op_type == "Conv" else gradient
        flat = last.reshape(-1, groups, last.shape[-1] // groups)
        return np.ascontiguousarray(_some(flat, share, rng).transpose(1, 0, 2))

    def add_to_bias(self, shift: Array) -> None:
        """Shift the output by as much for each row of each group."""
        assert self.bias is not None
        node, place = self.bias
        value, graph = node.inputs[place], node.graph
        assert value is not None
        assert isinstance(graph, ir.Graph)
        old = constant(value)
        made = (old + shift.reshape(old.shape)).astype(np.float32)
        name = str(value.name).removesuffix("_pruned")
        node.replace_input_with(place, add_constant(graph, f"{name}_pruned", made))

    def _recurrent(self, array: Array, share: int, rng: np.random.Generator) -> Array:
        """X is (time, batch, columns) for all directions; Y (time, directions, batch, columns) has them apart."""
        directions = self._array.shape[0]
        if self.index == _INPUT:
            flat = _some(array.reshape(-1, array.shape[-1]), share, rng)
            return np.broadcast_to(flat, (directions, *flat.shape))
        flat = np.moveaxis(array, 1, 2).reshape(-1, directions, array.shape[-1])
        return np.ascontiguousarray(_some(flat, share, rng).transpose(1, 0, 2))

    def _whole(self) -> Array:
        if self.unit is not None:
            return weight_rows(self.unit).astype(np.float64)
        array = self._array.astype(np.float64)
        if self.node.op_type in RECURRENT:
            return array
        groups = self.node.attributes.get_int("group", 1)
        return array.reshape(groups, array.shape[0] // groups, -1).transpose(0, 2, 1)

    def _in_blocks(self, rows: Array) -> Array:
        if self.blocks == 1:
            return rows
        assert len(rows) == 1
        return np.ascontiguousarray(rows[0].reshape(rows.shape[1], self.blocks, -1).transpose(1, 0, 2))

    def _from_blocks(self, rows: Array) -> Array:
        if self.blocks == 1:
            return rows
        return np.ascontiguousarray(rows.transpose(1, 0, 2).reshape(1, rows.shape[1], -1))


def find_products(graph: ir.Graph) -> tuple[Product, ...]:
    """The weights that can be pruned, in graph order."""
    units = {unit.node: unit for unit in find_units(graph, _PRODUCTS)}
    return tuple(product for node in graph if not node.domain for product in _of(node, units.get(node)))


def _of(node: ir.Node, unit: Unit | None) -> Iterator[Product]:
    if unit is not None and is_product(unit):
        array = constant(unit.weight_or_fail[1])
        channels = array.shape[0 if node.op_type == "MatMul" else 1]
        columns = weight_rows(unit).shape[2]
        taps = columns // channels
        alone = len(weight_rows(unit)) == 1
        blocks = _blocks(channels, taps) if alone else (1 if columns <= MOST_COLUMNS else None)
        if blocks is not None:
            yield Product(node, unit.weight_or_fail[0], unit.data[0], taps, blocks, unit)
    elif node.op_type == "ConvTranspose":
        given, weight = _read(node, 0), _fixed(node, 1)
        if given is not None and weight is not None:
            channels = constant(weight).shape[0] // node.attributes.get_int("group", 1)
            if channels <= MOST_COLUMNS:
                yield Product(node, 1, given)
    elif node.op_type in RECURRENT:
        yield from _recurrent(node)


def _recurrent(node: ir.Node) -> Iterator[Product]:
    given = _read(node, 0)
    if node.attributes.get_int("layout", 0) or given is None:
        return
    for index, value in ((_INPUT, given), (_STATE, node.outputs[0])):
        weight = _fixed(node, index)
        if weight is not None and value.name and constant(weight).shape[2] <= MOST_COLUMNS:
            yield Product(node, index, value)


def _fixed(node: ir.Node, index: int) -> ir.Value | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return value if value is not None and is_constant(value) and is_float(value) else None


def _read(node: ir.Node, index: int) -> ir.Value | None:
    value = node.inputs[index]
    return value if value is not None and is_float(value) and not is_constant(value) else None


def _blocks(channels: int, taps: int) -> int | None:
    """The fewest equal parts of the channels that are narrow enough."""
    return next((n for n in range(1, channels + 1) if channels % n == 0 and channels // n * taps <= MOST_COLUMNS), None)


def _some(rows: Array, share: int, rng: np.random.Generator) -> Array:
    return rows if len(rows) <= share else rows[rng.choice(len(rows), share, replace=False)]


def total(products: Sequence[Product]) -> int:
    """Weights of all products."""
    return sum(product.size for product in products)
