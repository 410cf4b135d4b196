"""A pruned model whose weights can be changed: what it answers, how far off that is, and where each weight should go.

Gradients up to the products' outputs are nodes of the graph itself, which has its weights as inputs; those of the
weights are products of them with the inputs of the layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.graph.gradient import GRADIENT, add_gradients
from convertkit.quantization.graph.gradient_tape import Tape
from convertkit.quantization.graph.several import AT_ONCE, Calls, for_several, joined
from convertkit.quantization.graph.sizes import measure_sizes, sizes
from convertkit.quantization.graph.units import constant, is_float
from convertkit.quantization.pruning.products import Product, find_products
from convertkit.quantization.search.influence import read_values
from convertkit.stage import Feed

_INNER = 8
_INNER_WEIGHT = 4.0
"""Values on the way that are learnt, and what their errors count together where those of an output count 1."""
_LEARNT = frozenset({"Conv", "Gemm", "MatMul", "Add", "Relu", "ConvTranspose", "Clip"})
_TARGET = "learnt/"
_WEIGHT, _BIAS = "weight/", "bias/"

Arrays = dict[str, Array]
Kept = Mapping[str, tuple[int, Array]]
"""By the name of a value, the axis along which the student has fewer channels, and those that it has."""
ALL: Kept = {}


@dataclass(frozen=True, slots=True)
class Target:
    """A value that is learnt: what its error counts, its variance, and whether a softmax of one vector follows."""

    name: str
    weight: float
    power: float
    classes: bool


@dataclass(frozen=True, slots=True)
class Trained:
    """A product and the names that its weight and its bias have among the student's arrays.

    ``shifted`` is the value that the bias is added to last: an Add behind a MatMul has one of its own.
    """

    product: Product
    weight: str
    bias: str | None
    shifted: str


class Teacher:
    """The original model, and what is learnt of it."""

    def __init__(self, model: ir.Model, feeds: Sequence[Feed], kept: Kept = ALL) -> None:
        copy, self._kept = model.clone(), kept
        made = {str(value.name): value for node in copy.graph for value in node.outputs}
        read = read_values(copy)
        inner = [
            str(value.name) for node in copy.graph for value in node.outputs
            if node.op_type in _LEARNT and value.name not in read and is_float(value)
        ]  # fmt: skip
        count = min(_INNER, len(inner))
        weights = dict.fromkeys(read, 1.0)
        for index in range(count):
            weights[inner[(index + 1) * len(inner) // (count + 1)]] = _INNER_WEIGHT / count
        classes = {name: _has_classes(made[name]) for name in read}
        copy.graph.outputs.extend(made[name] for name in weights if not made[name].is_graph_output())
        self._names, several = tuple(weights), for_several(copy, tuple(weights), feeds)
        self._calls = Calls(several or copy, several=several is not None)
        answers = list(self.answers(feeds))
        self.targets = tuple(
            Target(name, weight, _power([answer[name] for answer in answers]), classes.get(name, False))
            for name, weight in weights.items()
        )

    def answers(self, feeds: Sequence[Feed]) -> list[Arrays]:
        """What is learnt, for each feed, of the channels that the student has."""
        return [
            {name: self._of(name, array) for name, array in answer.items()}
            for answer in self._calls(self._names, feeds)
        ]

    def _of(self, name: str, array: Array) -> Array:
        if name not in self._kept:
            return array
        axis, channels = self._kept[name]
        return np.ascontiguousarray(np.take(array, channels, axis))


class Student:
    """A copy of ``model`` with the weights of its products in ``arrays``."""

    def __init__(self, model: ir.Model, targets: Sequence[Target], feeds: Sequence[Feed]) -> None:
        """``feeds`` tell sizes, and whether several samples can be computed at a time."""
        products = find_products(model.graph)
        several = for_several(model, _watched(products, targets), feeds)
        together = 1 if several is None else AT_ONCE
        copy = model.clone() if several is None else several
        measure_sizes(copy, feeds[0] if several is None else joined(feeds[:AT_ONCE]), {})
        graph, tape = copy.graph, Tape(copy.graph)
        values = {str(value.name): value for node in graph for value in node.outputs}
        pairs = list(zip(products, find_products(graph), strict=True))
        starts = {values[each.name]: _start(tape, values[each.name], each, together) for each in targets}
        own = [one for one, other in pairs if one.output is not None and _is_own(other)]
        known = add_gradients(tape, starts, [name for one in own for name in (str(one.output), _shifted(one))])
        self.arrays: Arrays = {}
        self.trained = [self._taken(one, other) for one, other in pairs if one.output in known]
        self._targets = tuple(targets)
        self.weight = sum(each.weight + each.classes for each in targets)
        self._read = tuple(dict.fromkeys(
            str(each.product.value.name) for each in self.trained if not each.product.value.is_graph_input()
        ))  # fmt: skip
        wanted = dict.fromkeys((*self._read, *(each.name for each in targets)))
        graph.outputs.extend(values[name] for name in wanted if not values[name].is_graph_output())
        self._calls = Calls(copy, several=several is not None)

    def loss(self, feeds: Sequence[Feed], wanted: Sequence[Arrays]) -> float:
        """How far what is learnt is from the teacher's: 0 where it is the same, about 1 where nothing is left."""
        names = [each.name for each in self._targets]
        got = list(self._calls(names, _given(feeds, wanted), self.arrays))
        total = 0.0
        for target in self._targets:
            one, other = (
                np.stack([each[target.name] for each in answers]).astype(np.float64) for answers in (wanted, got)
            )
            total += target.weight * float(np.square(other - one).mean()) / target.power
            if target.classes:
                total += _divergence(one, other)
        return total / self.weight

    def gradients(self, feeds: Sequence[Feed], wanted: Sequence[Arrays]) -> Arrays:
        """The gradients, by the names of :attr:`arrays`, of the loss before it is divided by :attr:`weight`."""
        names = [GRADIENT + str(each.product.output) for each in self.trained]
        more = [GRADIENT + each.shifted for each in self.trained]
        asked = [*dict.fromkeys((*self._read, *names, *more))]
        got = list(self._calls(asked, _given(feeds, wanted), self.arrays))
        made = {}
        for each, name in zip(self.trained, names, strict=True):
            x, gradient = self._inputs(each.product, feeds, got), np.concatenate([answer[name] for answer in got])
            scaled = gradient / np.float32(len(feeds))
            made[each.weight] = weight_gradient(each.product.node, x, scaled, self.arrays[each.weight].shape)
            if each.bias is not None:
                channels = 1 if each.product.node.op_type == "Conv" else gradient.ndim - 1
                others = tuple(axis for axis in range(gradient.ndim) if axis != channels)
                behind = np.concatenate([answer[GRADIENT + each.shifted] for answer in got]) / np.float32(len(feeds))
                made[each.bias] = behind.sum(axis=others).reshape(self.arrays[each.bias].shape)
        return made

    def inputs(self, feeds: Sequence[Feed], wanted: Sequence[Arrays]) -> list[Array]:
        """What each trained product reads, all feeds along the first axis."""
        got = list(self._calls(self._read, _given(feeds, wanted), self.arrays))
        return [self._inputs(each.product, feeds, got) for each in self.trained]

    def write(self) -> None:
        """Give the model its weights."""
        for each in self.trained:
            found = [(each.product.node, each.product.index, each.weight)]
            if each.bias is not None and each.product.bias is not None:
                found.append((*each.product.bias, each.bias))
            for node, place, name in found:
                value = node.inputs[place]
                assert value is not None
                value.const_value = ir.Tensor(self.arrays[name], name=value.name)

    def _inputs(self, product: Product, feeds: Sequence[Feed], got: Sequence[Arrays]) -> Array:
        name = str(product.value.name)
        return np.concatenate(
            [feed[name] if name in feed else values[name] for feed, values in zip(feeds, got, strict=True)]
        )

    def _taken(self, own: Product, inside: Product) -> Trained:
        weight = self._free(inside.node, inside.index, _WEIGHT + own.name)
        bias = None if inside.bias is None else self._free(*inside.bias, _BIAS + own.name)
        return Trained(own, weight, bias, _shifted(own))

    def _free(self, node: ir.Node, place: int, name: str) -> str:
        """Make a constant an input of the graph, for the node and what computes its gradient."""
        value, graph = node.inputs[place], node.graph
        assert value is not None
        assert isinstance(graph, ir.Graph)
        self.arrays[name] = np.array(constant(value), np.float32)
        given = ir.Value(name=name, shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT))
        graph.inputs.append(given)
        value.replace_all_uses_with(given)
        return name


def weight_gradient(node: ir.Node, x: Array, gradient: Array, shape: Sequence[int]) -> Array:
    """The gradient of the weight, of this shape, of a Conv, Gemm or MatMul that reads ``x``."""
    if node.op_type == "Conv":
        return _kernel_gradient(node, x, gradient, shape)
    rows, out = (each.reshape(-1, each.shape[-1]) for each in (x, gradient))
    made = np.float32(node.attributes.get_float("alpha", 1.0)) * np.matmul(rows.T, out)
    return np.ascontiguousarray(made.T if node.attributes.get_int("transB", 0) else made)


def _kernel_gradient(node: ir.Node, x: Array, gradient: Array, shape: Sequence[int]) -> Array:
    """Tap by tap: what the tap reads times what its sums are wanted to change by."""
    kernel, rank, count = tuple(shape[2:]), len(shape) - 2, len(x)
    attributes, groups = node.attributes, node.attributes.get_int("group", 1)
    strides, dilations = (attributes.get_ints(name, (1,) * rank) for name in ("strides", "dilations"))
    pads = attributes.get_ints("pads", (0,) * (2 * rank))
    padded = np.pad(x, ((0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)))
    made = np.empty((groups, shape[0] // groups, *shape[1:]), np.float32)
    out = gradient.reshape(count, groups, shape[0] // groups, -1)
    for tap in np.ndindex(*kernel):
        where = [
            slice(place * dilation, place * dilation + (size - 1) * stride + 1, stride)
            for place, dilation, stride, size in zip(tap, dilations, strides, gradient.shape[2:], strict=True)
        ]
        read = padded[(slice(None), slice(None), *where)].reshape(count, groups, shape[1], -1)
        alone = read.shape[2] == out.shape[2] == 1
        product = (
            np.einsum("ngap,ngbp->gab", out, read) if alone else np.matmul(out, read.swapaxes(2, 3)).sum(axis=0)
        )  # fmt: skip
        made[(slice(None), slice(None), slice(None), *tap)] = product
    return made.reshape(shape)


def _given(feeds: Sequence[Feed], wanted: Sequence[Arrays]) -> list[Feed]:
    """Samples, each with what the teacher makes of it."""
    return [
        {**feed, **{_TARGET + name: array for name, array in answers.items()}}
        for feed, answers in zip(feeds, wanted, strict=True)
    ]


def _watched(products: Sequence[Product], targets: Sequence[Target]) -> tuple[str, ...]:
    """The values of which gradients and weights' gradients are made."""
    read = [str(each.value.name) for each in products if not each.value.is_graph_input()]
    made = [name for each in products if each.output is not None for name in (each.output, _shifted(each))]
    return tuple(dict.fromkeys((*read, *made, *(each.name for each in targets))))


def _start(tape: Tape, value: ir.Value, target: Target, samples: int) -> ir.Value:
    """The gradient of each of ``samples``' loss with respect to the value, where the teacher's is an input."""
    wanted = ir.Value(name=_TARGET + target.name, shape=value.shape, type=value.type)
    tape.graph.inputs.append(wanted)
    factor = tape.real(2 * target.weight * samples / target.power / math.prod(sizes(value)))
    found = tape.op("Mul", tape.op("Sub", value, wanted), factor)
    if not target.classes:
        return found
    likely = [tape.op("Softmax", each, axis=-1) for each in (value, wanted)]
    return tape.op("Add", found, tape.op("Sub", *likely))


def _shifted(product: Product) -> str:
    node = product.node if product.bias is None else product.bias[0]
    return str(node.outputs[0].name)


def _is_own(product: Product) -> bool:
    """Whether weight and bias are float32 and nothing else reads them."""
    places = [(product.node, product.index), *([] if product.bias is None else [product.bias])]
    values = [node.inputs[place] for node, place in places]
    return all(v is not None and v.dtype == ir.DataType.FLOAT and len(list(v.uses())) == 1 for v in values)


def _has_classes(value: ir.Value) -> bool:
    """Whether a softmax of one vector follows."""
    shape = sizes(value)
    follows = any(use.node.op_type in ("Softmax", "LogSoftmax") and not use.node.domain for use in value.uses())
    return follows and len(shape) == 2 and shape[0] == 1


def _power(values: Sequence[Array]) -> float:
    """The variance over samples."""
    stacked = np.stack(values).astype(np.float64)
    return max(float(np.square(stacked - stacked.mean(axis=0)).mean()), 1e-12)


def _divergence(one: Array, other: Array) -> float:
    """Of Kullback and Leibler, of the classes of each vector, mean over vectors."""
    logs = [each - each.max(axis=-1, keepdims=True) for each in (one, other)]
    wanted, got = (each - np.log(np.exp(each).sum(axis=-1, keepdims=True)) for each in logs)
    return float((np.exp(wanted) * (wanted - got)).sum(axis=-1).mean())
