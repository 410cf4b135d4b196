"""A model with zeros for weights: how many in which layer, and what the weights that stay become.

Layers are treated from first to last, each on the inputs that the pruned layers before it give, towards the outputs
that it had in the original model; biases take up what the means lose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.data.held_out import spread
from convertkit.onnx.edit import drop_unused
from convertkit.progress import Progress
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.pruning.budgets import DENSITIES, Curve, shares
from convertkit.quantization.pruning.inputs import Inputs, measure_inputs, measure_weights
from convertkit.quantization.pruning.patterns import Pattern, largest, neighbours
from convertkit.quantization.pruning.products import Product, find_products
from convertkit.quantization.pruning.reconstruct import Effort, Layer, inverted, toward_original
from convertkit.quantization.search.reference import Reference, affordable_samples
from convertkit.quantization.weights.blas import one_thread
from convertkit.stage import Feed

T = TypeVar("T")

_THREADS = 2
_SAMPLES = (32, 256)
"""Least and most samples that moments are measured on, by the model's work."""
_FORWARD = 4e11
"""Multiply-adds that running the model between layers may cost: cheap models are run before every layer."""
_PROBED = (8, 64)
"""Least and most samples on which the noise of single layers is measured."""
_PROBES = 1e11
"""Multiply-adds that those runs may cost."""
_SMALL = 0.05
"""Noise of less than this share of the signal's power grows as the layer's own error does."""
_SEARCH = 3e11
"""Multiply-adds of the search for one layer's weights in all layers together, before it is cut short."""
_QUICK = Effort(6, 2, 5, 12)
_QUICK_DENSITIES = 7
"""At how many densities errors are measured where the search is cut short; those between lie between."""


@dataclass(frozen=True, slots=True)
class Found:
    """One layer's share of zeros, and the SNR of its output in dB, given the inputs of the pruned model."""

    name: str
    zeros: float
    snr_db: float | None = None


def fitted_samples(model: ir.Model, feeds: Sequence[Feed]) -> list[Feed]:
    """Those that layers are fitted to: fewer of large models, evenly spread."""
    return [feeds[place] for place in spread(len(feeds), affordable_samples(model, *_SAMPLES))]


class Sparsifier:
    """Prunes copies of one model on the same samples.  Products are told apart by their place in graph order."""

    def __init__(
        self, model: ir.Model, feeds: Sequence[Feed], state: Mapping[str, Array], seed: int, progress: Progress
    ) -> None:
        self.model, self.state, self._seed, self._progress = model, state, seed, progress
        self.products = find_products(model.graph)
        self.feeds = fitted_samples(model, feeds)
        self._work = sum(map(multiply_adds, model.graph))
        search = sum(float(product.size) * product.rows.shape[2] for product in self.products)
        self._weights = measure_weights(model, self.products, self.feeds, state, seed)
        self._effort = Effort() if search * 100 < _SEARCH else _QUICK
        count = _QUICK_DENSITIES if self._effort is _QUICK else len(DENSITIES)
        self._places = [round(place) for place in np.linspace(0, len(DENSITIES) - 1, count)]

    def curves(self) -> dict[Product, Curve]:
        """What each product alone costs at each density."""
        measured = self._inputs([self.model], self.products)
        jobs = [partial(self._alone, product, measured[product]) for product in self.products]
        found = dict(zip(self.products, self._parallel(jobs, "pruning layer by layer"), strict=True))
        probes = self.feeds[:: -(-len(self.feeds) // affordable_samples(self.model, *_PROBED))]
        reference = Reference(self.model.clone(), probes, self.state)
        runs = len(probes) * len(self.products) * max(self._work, 1.0)
        known = len(self._places)
        count = int(np.clip(_PROBES / runs, 1, known))
        chosen = sorted({round(place) for place in np.linspace(0, known - 1, count + 2)[1:-1]})
        places = self._places if count == known else [self._places[place] for place in chosen]
        return {
            product: self._curve(reference, product, each)
            for product, each in self._progress.track(
                ((product, _Probes(rows, errors, places, shifts)) for product, (rows, errors, shifts) in found.items()),
                len(found), "measuring layers",
            )
        }  # fmt: skip

    def scores(self) -> dict[Product, Array]:
        """What the outputs lose without each weight where the others of its row make up for it, as weights lie.

        Source: the optimal brain surgeon's saliency, w² over the diagonal of the inverse second moment.
        """
        measured = self._inputs([self.model], self.products)
        jobs = [partial(self._scored, product, measured[product]) for product in self.products]
        return dict(zip(self.products, self._parallel(jobs), strict=True))

    def pruned(self, wanted: Pattern, curves: Mapping[Product, Curve]) -> tuple[ir.Model, tuple[Found, ...]]:
        """A pruned copy of the model, and what became of its layers; ``curves`` are not needed for N:M."""
        model = self.model.clone()
        copies = find_products(model.graph)
        chosen = self._densities(wanted, curves)
        todo = [(copy, density) for copy, density in zip(copies, chosen, strict=True) if density < 1]
        found: list[Found] = []
        for part in self._progress.track(_parts(todo, self._groups(len(todo))), None, "pruning"):
            products = [product for product, _ in part]
            measured = self._inputs([self.model, model], products)
            jobs = [partial(self._together, product, density, measured[product], wanted) for product, density in part]
            for product, (rows, shift, snr_db) in zip(products, self._parallel(jobs), strict=True):
                product.store(rows)
                if shift is not None:
                    product.add_to_bias(shift)
                found.append(Found(product.name, float((rows == 0).mean()), snr_db))
        drop_unused(model.graph)
        return model, tuple(found)

    def _inputs(self, models: Sequence[ir.Model], products: Sequence[Product]) -> dict[Product, Inputs]:
        return measure_inputs(models, products, self.feeds, self.state, self._seed, self._weights)

    def _densities(self, wanted: Pattern, curves: Mapping[Product, Curve]) -> list[float]:
        if wanted.of:
            return [1 - wanted.share if fits(product, wanted) else 1.0 for product in self.products]
        chosen = shares(curves, wanted.share)
        return [1 - chosen[product] for product in self.products]

    def _groups(self, layers: int) -> int:
        """How many times the model is run up to somewhere: before every layer, where that is cheap."""
        once = max(self._work * len(self.feeds), 1.0)
        return int(np.clip(_FORWARD / once, min(4, layers), layers)) if layers else 0

    def _parallel(self, jobs: Sequence[Callable[[], T]], title: str = "") -> list[T]:
        with one_thread(), ThreadPoolExecutor(_THREADS) as pool:
            made = pool.map(lambda job: job(), jobs)
            return list(self._progress.track(made, len(jobs), title) if title else made)

    def _alone(self, product: Product, inputs: Inputs) -> tuple[dict[int, Array], list[float], dict[int, Array] | None]:
        """Rows by the places of densities, float32, the error at each, and what is added to the bias with rows."""
        second, _ = inputs.moments(centred=product.bias is not None)
        layer = _Weighed(product, inputs)
        search = Layer(layer.rows(product.rows), second)
        rows, errors = {}, []
        path = search.path([DENSITIES[place] for place in self._places], _by_size, self._effort.iterations)
        for place, mask in zip(self._places, path, strict=True):
            fitted = search.fitted(mask, self._effort.fit // 3)
            errors.append(max(search.error(fitted), 1e-30))
            rows[place] = layer.real(search.real(fitted)).astype(np.float32)
        if len(errors) < len(DENSITIES):
            errors = np.exp(np.interp(range(len(DENSITIES)), self._places, np.log(errors))).tolist()
        return rows, errors, {place: layer.shift(each) for place, each in rows.items()} if product.bias else None

    def _scored(self, product: Product, inputs: Inputs) -> Array:
        search = Layer(
            _Weighed(product, inputs).rows(product.rows), inputs.moments(centred=product.bias is not None)[0]
        )
        spread = np.diagonal(inverted(search.second), axis1=1, axis2=2)
        whole = 1.0 if inputs.weighed else max(search.power, 1e-30)
        return np.asarray((np.square(search.rows) / spread[:, None, :] / whole).reshape(product.rows.shape))

    def _together(
        self, product: Product, density: float, inputs: Inputs, wanted: Pattern
    ) -> tuple[Array, Array | None, float]:
        """The rows, what is added to the bias, and the SNR in dB."""
        second, cross = inputs.moments(centred=product.bias is not None)
        layer = _Weighed(product, inputs)
        search = Layer(toward_original(layer.rows(product.rows), second, cross), second)
        choose = partial(_of_neighbours, wanted=wanted, taps=product.taps) if wanted.of else _by_size
        fitted = search.sparse(density, choose, self._effort)
        rows = layer.real(search.real(fitted))
        snr_db = 10 * np.log10(max(search.power, 1e-30) / max(search.error(fitted), 1e-30))
        return rows, None if product.bias is None else layer.shift(rows), float(snr_db)

    def _curve(self, reference: Reference, product: Product, probes: _Probes) -> Curve:
        noise = {place: self._noise(reference, product, probes, place) for place in probes.places}
        known = sorted(noise)
        ratio = [noise[place] / max(probes.errors[place], 1e-30) for place in known]
        scale = np.exp(np.interp(range(len(DENSITIES)), known, np.log(np.maximum(ratio, 1e-30))))
        small = scale[max((place for place in known if noise[place] < _SMALL), default=known[0])]
        # Noise that drowns the signal no longer grows: of the other layers' it would, so what it would be is taken.
        return Curve(tuple(
            max(noise.get(place, float(scale[place] * error)), float(small * error))
            for place, error in enumerate(probes.errors)
        ))  # fmt: skip

    def _noise(self, reference: Reference, product: Product, probes: _Probes, place: int) -> float:
        """Noise over signal at the outputs where one product alone is pruned."""
        rows = probes.rows[place].astype(np.float64)
        before = product.node.inputs[product.index]
        bias = None if product.bias is None else (*product.bias, product.bias[0].inputs[product.bias[1]])
        if probes.shifts is not None:
            product.add_to_bias(probes.shifts[place])
        product.store(rows)
        copy = self.model.clone()
        product.node.replace_input_with(product.index, before)
        if bias is not None:
            bias[0].replace_input_with(bias[1], bias[2])
        drop_unused(self.model.graph)
        drop_unused(copy.graph)
        return relative_noise(reference, copy)


@dataclass(frozen=True, slots=True)
class _Probes:
    """The rows of one product by places of densities, errors, where to measure, and what is added to the bias."""

    rows: Mapping[int, Array]
    errors: Sequence[float]
    places: Sequence[int]
    shifts: Mapping[int, Array] | None


class _Weighed:
    """A product's rows in the form that its moments take, and back."""

    def __init__(self, product: Product, inputs: Inputs) -> None:
        rows = product.rows
        self._shape, self._blocks, self._inputs = rows.shape, product.blocks, inputs
        self._split = inputs.split(rows)
        self._importance = np.sqrt(inputs.importance(self._split))

    def rows(self, rows: Array) -> Array:
        """Rows whose errors add up to what the outputs lose."""
        return np.asarray(self._inputs.split(rows) * self._importance)

    def real(self, rows: Array) -> Array:
        """The inverse of :meth:`rows`."""
        return np.asarray((rows / self._importance).reshape(self._shape))

    def shift(self, rows: Array) -> Array:
        """What makes up for the mean of the outputs, where ``rows`` stand for the original ones."""
        now, before = self._inputs.means()
        lost = np.einsum("grc,gc->gr", self._split, before) - np.einsum("grc,gc->gr", self._inputs.split(rows), now)
        parts = lost.reshape(self._shape[:2])
        return np.asarray(parts if self._blocks == 1 else parts.sum(axis=0))


def fits(product: Product, wanted: Pattern) -> bool:
    """Whether the product's channels can be taken ``wanted.of`` at a time."""
    return bool(product.rows.shape[2] % (product.taps * wanted.of) == 0)


def _by_size(scores: Array, density: float) -> Array:
    return largest(scores, round(density * scores.size))


def _of_neighbours(scores: Array, density: float, *, wanted: Pattern, taps: int) -> Array:
    """At first any weights, then the pattern."""
    if density > 1 - wanted.share + 1e-9:
        return largest(scores, round(density * scores.size))
    return neighbours(scores, wanted, taps)


def relative_noise(reference: Reference, copy: ir.Model) -> float:
    """The power of the error over that of the outputs, which are summed up; ``copy`` is changed."""
    total = 0.0
    for one, other in zip(reference.outputs, reference.answers(copy), strict=True):
        signal = sum(float(np.square(array.astype(np.float64)).sum()) for array in one.before)
        noise = sum(
            float(np.square(after.astype(np.float64) - before).sum())
            for before, after in zip(one.before, other.before, strict=True)
        )
        total += noise / max(signal, 1e-30)
    return total


def _parts(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """``items`` in ``count`` runs of about equal length."""
    edges = [index * len(items) // max(count, 1) for index in range(count + 1)]
    return [items[first:last] for first, last in itertools.pairwise(edges) if last > first]
