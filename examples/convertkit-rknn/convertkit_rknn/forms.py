"""Forms that RKNN-Toolkit2 reads as integers.

before:  x:i8, w:i8 → MatMul → Add bias → QuantizeLinear
after:   x:i8, w:i8 → Gemm with bias → QuantizeLinear

The toolkit joins the former itself, takes the weights for float16 then, and ends with a ValueError.  A product of more
dimensions becomes a convolution of 1 × 1: as it stands the toolkit ends so, too, or rewrites it without an end.

before:  x:i8 [1, 5, 8], w:i8 [8, 6] → MatMul → Add bias → y [1, 5, 6]
after:   Reshape [1, 1, 5, 8] → Transpose [1, 8, 5, 1] → Conv w:i8 [6, 8, 1, 1] → Transpose → Reshape [1, 5, 6]

A product of two computed matrices has four axes: of any other number the toolkit rewrites it without an end.

before:  a:i8 [2, 3, 5], b:i8 [2, 5, 4] → MatMul → y:i8 [2, 3, 4]
after:   Reshape a [1, 2, 3, 5], Reshape b [1, 2, 5, 4] → MatMul → Reshape [2, 3, 4]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

_FLAT = 2
_AXES = 4
_TURNED = (0, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class _Dense:
    """A product with stored weights, [inputs, outputs], and the sum that adds its bias, where there is one."""

    product: ir.Node
    weights: ir.Node
    sum: ir.Node | None
    bias: ir.Value | None

    @property
    def result(self) -> ir.Value:
        return (self.product if self.sum is None else self.sum).outputs[0]


def write_products(model: ir.Model) -> int:
    """Write products of integers, with the bias behind them where weights are stored, in place; how many there were."""
    written = 0
    for node in tuple(model.graph):
        if node.op_type == "MatMul" and _is_of_computed_integers(node):
            written += _write_four_axes(model.graph, node)
            continue
        dense = _dense(node) if node.op_type == "MatMul" else None
        sizes = () if dense is None else _sizes(dense.result)
        if dense is None or not sizes or not _sizes(node.inputs[0]) or (dense.sum is None and len(sizes) == _FLAT):
            continue
        (_write_gemm if len(sizes) == _FLAT else _write_convolution)(model.graph, dense)
        written += 1
    return written


def _is_of_computed_integers(product: ir.Node) -> bool:
    """Whether integers that the graph computes are multiplied, and the result is rounded to them or chosen among."""
    readers = [_steps_before(value) for value in product.inputs]
    computed = [reader is not None and reader.inputs[0] is not None and _stored(reader) is None for reader in readers]
    result = product.outputs[0]
    is_of_scores = {node.op_type for node, _ in result.uses()} == {"Softmax"} and not result.is_graph_output()
    return all(computed) and (is_of_scores or _steps_behind(result) is not None)


def _write_four_axes(graph: ir.Graph, product: ir.Node) -> bool:
    """Whether ``product`` has got four axes; not so where it has them, or where leading sizes differ."""
    result = product.outputs[0]
    given = [_sizes(value) for value in product.inputs]
    if not all(given) or len({sizes[:-_FLAT] for sizes in given}) > 1 or len(given[0]) == _AXES:
        return False
    leading = math.prod(given[0][:-_FLAT])
    operands = []
    for place, (value, sizes) in enumerate(zip(product.inputs, given, strict=True)):
        operand = _Chain(graph, _Dense(product, product, None, None), value, f"operand_{place}/")
        operand.reshaped((1, leading, *sizes[-_FLAT:]), _steps_before(value))
        operands.append(operand)
    left, right = operands
    left.then("MatMul", (1, leading, given[0][-2], given[1][-1]), right.value)
    left.quantized(_steps_behind(result))
    left.reshaped((*given[0][:-1], given[1][-1]), None)
    left.becomes()
    return True


def _dense(product: ir.Node) -> _Dense | None:
    """What ``product`` is part of; None where its weights are not stored."""
    weights = None if product.inputs[1] is None else product.inputs[1].producer()
    if weights is None or weights.op_type != "DequantizeLinear" or _stored(weights) is None:
        return None
    readers = tuple(product.outputs[0].uses())
    if len(readers) == 1 and readers[0].node.op_type == "Add" and not product.outputs[0].is_graph_output():
        bias = readers[0].node.inputs[1 - readers[0].idx]
        if bias is not None and bias.const_value is not None and len(bias.const_value.shape) == 1:
            return _Dense(product, weights, readers[0].node, bias)
    return _Dense(product, weights, None, None)


def _stored(reader: ir.Node) -> np.ndarray | None:
    """The matrix of integers that is read, None for other integers."""
    value = None if reader.inputs[0] is None else reader.inputs[0].const_value
    return value.numpy() if value is not None and len(value.shape) == _FLAT else None


def _sizes(value: ir.Value | None) -> tuple[int, ...]:
    """Two or more sizes that are known, none for others."""
    shape = () if value is None or value.shape is None else tuple(value.shape)
    known = tuple(size for size in shape if isinstance(size, int))
    return known if len(known) == len(shape) >= _FLAT else ()


def _write_gemm(graph: ir.Graph, dense: _Dense) -> None:
    chain = _Chain(graph, dense, dense.product.inputs[0])
    chain.then("Gemm", _sizes(dense.result), dense.product.inputs[1], dense.bias)
    chain.becomes()


def _write_convolution(graph: ir.Graph, dense: _Dense) -> None:
    data, sizes = dense.product.inputs[0], _sizes(dense.result)
    lines, inputs, outputs = math.prod(sizes[:-1]), _sizes(data)[-1], sizes[-1]
    given, made = _steps_before(data), _steps_behind(dense.result)
    chain = _Chain(graph, dense, data)
    chain.reshaped((1, 1, lines, inputs), given)
    chain.turned((1, inputs, lines, 1), given)
    kernel = _kernel(graph, dense.weights)
    chain.then("Conv", (1, outputs, lines, 1), kernel, *([] if dense.bias is None else [dense.bias]))
    chain.quantized(made)
    chain.turned((1, 1, lines, outputs), made)
    chain.reshaped(sizes, None)
    chain.becomes()


def _steps_before(value: ir.Value | None) -> ir.Node | None:
    """What reads the integers that ``value`` is made of: it has their scale and zero point."""
    reader = None if value is None else value.producer()
    return reader if reader is not None and reader.op_type == "DequantizeLinear" else None


def _steps_behind(value: ir.Value) -> ir.Node | None:
    """What makes integers of ``value``, where nothing else reads it."""
    readers = [node for node, _ in value.uses()]
    is_whole = len(readers) == 1 and not value.is_graph_output()
    return readers[0] if is_whole and readers[0].op_type == "QuantizeLinear" else None


def _kernel(graph: ir.Graph, weights: ir.Node) -> ir.Value:
    """The weights as those of a convolution of 1 × 1, with the same scales."""
    stored = _stored(weights)
    assert stored is not None
    name = f"{weights.name}/kernel"
    turned = _held(graph, name, np.ascontiguousarray(stored.T)[:, :, None, None])
    reader = ir.node("DequantizeLinear", [turned, *weights.inputs[1:]], {"axis": 0}, name=f"{name}/read")
    result = reader.outputs[0]
    result.name, result.type, result.shape = reader.name, weights.outputs[0].type, turned.shape
    graph.insert_before(weights, reader)
    return result


def _held(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    if name in graph.initializers:
        return graph.initializers[name]
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


class _Chain:
    """Nodes one behind the other, in the place of a dense layer."""

    def __init__(self, graph: ir.Graph, dense: _Dense, value: ir.Value | None, part: str = "") -> None:
        assert value is not None
        self._graph, self._dense, self._value, self._count = graph, dense, value, 0
        self._name = f"{dense.product.name}/{part}"

    @property
    def value(self) -> ir.Value:
        """The last node's result."""
        return self._value

    def then(
        self,
        kind: str,
        sizes: tuple[int, ...],
        *more: ir.Value | None,
        like: ir.Value | None = None,
        **attributes: object,
    ) -> None:
        """One more node, whose result has these sizes."""
        self._count += 1
        name = f"{self._name}{kind}_{self._count}"
        node = ir.node(kind, [self._value, *more], attributes, name=name)
        result = node.outputs[0]
        result.name, result.shape = name, ir.Shape(sizes)
        result.type = (like or self._dense.result).type
        self._graph.insert_before(self._dense.sum or self._dense.product, node)
        self._value = result

    def quantized(self, steps: ir.Node | None) -> None:
        """To integers and back by the scale and zero point of ``steps``, where there are some."""
        if steps is None:
            return
        sizes = _sizes(self._value)
        for kind, like in (("QuantizeLinear", steps.inputs[2]), ("DequantizeLinear", None)):
            self.then(kind, sizes, *steps.inputs[1:], like=like)

    def reshaped(self, sizes: tuple[int, ...], steps: ir.Node | None) -> None:
        """The same elements in these sizes."""
        stated = _held(self._graph, f"{self._name}sizes_{self._count}", np.array(sizes, np.int64))
        self.then("Reshape", sizes, stated)
        self.quantized(steps)

    def turned(self, sizes: tuple[int, ...], steps: ir.Node | None) -> None:
        """Channels and columns change places."""
        self.then("Transpose", sizes, perm=_TURNED)
        self.quantized(steps)

    def becomes(self) -> None:
        """The last value takes over the layer's result and its name."""
        old, name = self._dense.result, self._dense.result.name
        ir.convenience.replace_all_uses_with(old, self._value, replace_graph_outputs=True)
        gone = [node for node in (self._dense.sum, self._dense.product) if node is not None]
        self._graph.remove(gone, safe=True)
        self._value.name = name
