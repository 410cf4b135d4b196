"""Steps of training: Adam, for matrix products in coordinates in which their inputs are white.

There a few hundred steps do what thousands do with weights as they are, which are read by inputs that are much alike.
Sources: Adam, arXiv:1412.6980; the coordinates are those of :mod:`convertkit.quantization.pruning.whitened`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import torch

from convertkit.artifact import Array
from convertkit.quantization.graph.reordered import reordered_values
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.pruning.inputs import measure_inputs
from convertkit.quantization.pruning.products import Product, find_products
from convertkit.quantization.pruning.whitened import Coordinates
from convertkit.quantization.recovery.network import Network, Weight
from convertkit.quantization.weights.patches import from_rows, weight_rows
from convertkit.stage import Feed

_RATES = (0.02, 0.005)
"""Steps of real weights and of those on a grid, relative to their own size, where nothing is left of the answers …"""
_MOST = 0.03
"""… and the largest steps of real weights in any case."""
_LEAST_SIZE = 0.01
_MOMENTUM, _VARIANCE = 0.9, 0.99


@dataclass(frozen=True, slots=True)
class _Moments:
    """The weight of a product of the original model, and E[x xᵀ] of what it is multiplied with."""

    unit: Unit
    second: Array


@dataclass(slots=True)
class _Moving:
    """One weight on its way; ``white`` is None where it moves as it is."""

    weight: Weight
    unit: Unit | None
    white: Coordinates | None
    size: float
    mean: Array = field(default_factory=lambda: np.zeros(()))
    square: Array = field(default_factory=lambda: np.zeros(()))

    def gradient(self) -> Array:
        found = self.weight.real.grad
        array = np.zeros(self.weight.real.shape, np.float32) if found is None else found.numpy()
        if self.white is None or self.unit is None:
            return array
        return self.white.gradient(weight_rows(self.unit, array))

    def move(self, step: Array) -> None:
        if self.white is not None and self.unit is not None:
            step = from_rows(self.unit, self.white.spread(self.white.step(step))).reshape(self.weight.real.shape)
        with torch.no_grad():
            self.weight.real.sub_(torch.from_numpy(np.ascontiguousarray(step, np.float32)))


class Optimizer:
    """Moves the weights of ``changed``, a changed copy of ``original``; ``feeds`` tell what its products read."""

    def __init__(
        self, original: ir.Model, changed: ir.Model, student: Network, feeds: Sequence[Feed], seed: int
    ) -> None:
        known = dict(_known(original, student, feeds, seed))
        if reordered_values(student.graph):  # whose products have inputs in another order
            known = {**dict(_known(changed, student, feeds, seed)), **known}
        self._moving = [_moving(weight, known.get(str(weight.stored.name))) for weight in student.weights]
        self._boldness, self._done = 1.0, 0

    @property
    def has_matrices(self) -> bool:
        """Whether real weights beyond biases and scales are moved, whose steps may be longer."""
        return any(each.weight.grid is None and each.weight.real.squeeze().ndim > 1 for each in self._moving)

    def begin(self, boldness: float) -> None:
        """Forget the steps that were taken; those of real weights are so many times as long from now on."""
        self._boldness, self._done = boldness, 0
        for each in self._moving:
            each.mean, each.square = np.zeros(()), np.zeros(())

    def step(self, distance: float, part: float) -> None:
        """One step along the gradients, which are used up: ``part`` of one for answers so far from the wanted ones.

        ``distance`` is 1 where nothing is left of them: what is nearly right needs weights near what they are.
        """
        self._done += 1
        for each in self._moving:
            gradient = each.gradient()
            each.mean = _MOMENTUM * each.mean + (1 - _MOMENTUM) * gradient
            each.square = _VARIANCE * each.square + (1 - _VARIANCE) * np.square(gradient)
            mean = each.mean / (1 - _MOMENTUM**self._done)
            size = np.sqrt(each.square / (1 - _VARIANCE**self._done))
            if each.weight.grid is None:
                length = min(self._boldness * distance * _RATES[0], _MOST)
            else:
                length = distance * _RATES[1]
            each.move(part * length * each.size * mean / (size + 1e-12))
            each.weight.real.grad = None


def _known(original: ir.Model, student: Network, feeds: Sequence[Feed], seed: int) -> Iterator[tuple[str, _Moments]]:
    """By the names of stored weights: what is known of the products that both graphs have, one for each weight."""
    nodes = {str(node.name): node for node in student.graph}
    products = [each for each in find_products(original.graph) if each.unit is not None and each.blocks == 1]
    found = measure_inputs([original], products, feeds, {}, seed)
    stored = {weight.made: weight for weight in student.weights}
    for product in products:
        value = _alike(nodes.get(product.name), product)
        weight = None if value is None else stored.get(value)
        if weight is not None and product.unit is not None:
            yield str(weight.stored.name), _Moments(product.unit, found[product].moments(centred=False)[0])


def _alike(node: ir.Node | None, product: Product) -> ir.Value | None:
    """The weight of a node that multiplies as the original's does."""
    if node is None or node.op_type != product.node.op_type or product.index >= len(node.inputs):
        return None
    own, other = product.node.inputs[product.index], node.inputs[product.index]
    turned = {each.attributes.get_int("transB", 0) for each in (node, product.node)}
    same = own is not None and other is not None and own.shape == other.shape and len(turned) == 1
    return other if same else None


def _moving(weight: Weight, known: _Moments | None) -> _Moving:
    real = weight.real.detach()
    if known is None:
        stays = real[real != 0]
        size = float(stays.square().mean().sqrt()) if stays.numel() else 0.0
        return _Moving(weight, None, None, max(size, _LEAST_SIZE))
    rows = weight_rows(known.unit, real.numpy())
    mask = np.ones(real.shape, bool) if weight.mask is None else weight.mask.numpy() != 0
    white = Coordinates(rows, weight_rows(known.unit, mask), known.second)
    return _Moving(weight, known.unit, white, white.size)
