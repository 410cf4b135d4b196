"""How many weights each layer may lose, by what the model's outputs lose with them.

Every layer is pruned alone to falling densities, and the noise that reaches the outputs is measured.  Noise of
different layers is taken to add up; the shares that make the sum least are found with one multiplier for all layers.
Without data, weights of all layers are ranked together by what share they are of the smaller ones' and their own power.
Source of that ranking: LAMP, arXiv:2010.07611.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.pruning.patterns import largest
from convertkit.quantization.pruning.products import Product

DENSITIES = tuple(float(density) for density in np.geomspace(0.7, 0.02, 12))
_FINE = 400
_ROUNDS = 80


@dataclass(frozen=True, slots=True)
class Curve:
    """The noise at the model's outputs, relative to their power, at each of :data:`DENSITIES` of one product."""

    noise: tuple[float, ...]

    def fine(self) -> tuple[Array, Array]:
        """Shares of zeros from none on, and the noise at each, which never falls."""
        shares = np.array([0.0, *(1 - density for density in DENSITIES)])
        noise = np.maximum.accumulate(np.array([0.0, *self.noise]))
        wanted = np.linspace(0.0, shares[-1], _FINE)
        return wanted, np.square(np.interp(wanted, shares, np.sqrt(noise)))  # amplitudes grow evenly, power does not


def shares(curves: Mapping[Product, Curve], wanted: float) -> dict[Product, float]:
    """The share of zeros of each product, ``wanted`` of all weights together."""
    fine = {product: curve.fine() for product, curve in curves.items()}
    low, high = -40.0, 10.0
    count = sum(product.size for product in curves)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        chosen = _at(fine, middle)
        zeros = sum(chosen[product] * product.size for product in curves)
        low, high = (middle, high) if zeros < wanted * count else (low, middle)
    return _exactly(_at(fine, high), wanted * count)


def _at(fine: Mapping[Product, tuple[Array, Array]], price: float) -> dict[Product, float]:
    """The best share of each product where a zero is worth ``exp(price)``."""
    worth = np.exp(price)
    return {
        product: float(share[np.argmin(noise - worth * share * product.size)])
        for product, (share, noise) in fine.items()
    }


def _exactly(chosen: dict[Product, float], zeros: float) -> dict[Product, float]:
    """The shares with what one step of the price overshoots given back, most to the largest products."""
    over = sum(share * product.size for product, share in chosen.items()) - zeros
    for product in sorted(chosen, key=lambda each: -each.size):
        back = float(np.clip(over, 0, chosen[product] * product.size))
        chosen[product] -= back / product.size
        over -= back
    return chosen


def by_magnitude(rows: Mapping[Product, Array], wanted: float) -> dict[Product, Array]:
    """Which weights stay of each product, ``wanted`` zeros of all together, by magnitude alone."""
    scores = {product: _relative(array) for product, array in rows.items()}
    joined = np.concatenate([score.ravel() for score in scores.values()])
    kept = largest(joined, joined.size - int(joined.size * wanted))
    starts = np.cumsum([0, *(score.size for score in scores.values())])
    return {
        product: kept[start : start + score.size].reshape(score.shape)
        for (product, score), start in zip(scores.items(), starts[:-1], strict=True)
    }


def _relative(rows: Array) -> Array:
    """Each weight's power over that of itself and all larger ones of its layer."""
    power = np.square(rows).ravel()
    order = np.argsort(power, kind="stable")
    behind = np.cumsum(power[order][::-1])[::-1]
    score = np.empty_like(power)
    score[order] = power[order] / np.maximum(behind, 1e-300)
    return np.asarray(score.reshape(rows.shape))
