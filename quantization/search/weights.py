"""How many bits each weight gets where activations are float: more, where held-out samples show that it takes more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit, constant, find_units
from convertkit.quantization.place.estimates import Estimates, devices
from convertkit.quantization.place.narrow import pace, widened_for_time
from convertkit.quantization.search.floor import is_enough
from convertkit.quantization.search.levels import decibels
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.reference import Reference, weight_bytes
from convertkit.quantization.weights.tune import Tuned
from convertkit.quantization.weights.weight_only import (
    Corrected,
    is_candidate,
    nearest,
    nearest_wide,
    quantize_weights,
    widened,
)
from convertkit.recipe import ExportOptions

Name = Literal["int4", "some int8", "int8", "some float", "float"]


@dataclass(frozen=True, slots=True)
class Widths:
    """Names of units whose weights are int8 where the profile's are int4, and of those whose weights stay float.

    ``others``: embedding tables and recurrent weights become int8.
    """

    wide: frozenset[str]
    real: frozenset[str] = frozenset()
    others: bool = True


@dataclass(frozen=True, slots=True)
class Chosen:
    """The widths that are made, what they and the ``fewest`` bits keep (None where no data tells), what was tried.

    ``time_share``: the time over float32's by the cost table, None without one.
    """

    widths: Widths
    quality: Quality | None
    fewest: Quality | None = None
    rungs: tuple[Mapping[str, object], ...] = ()
    time_share: float | None = None


def first_wide(
    graph: ir.Graph, units: tuple[Unit, ...], profile: QuantProfile, *, size_first: bool = False
) -> frozenset[str]:
    """Names of units that get 8 bits from the start: those that 4 would make slow, and the smallest.

    With ``size_first`` none does.
    """
    if profile.weight != "int4" or size_first:
        return frozenset()
    slow: frozenset[str] = frozenset()
    if profile.narrow is not None:
        stored = {v: constant(v).size for unit in units if is_candidate(unit) for _, v in [unit.weight_or_fail]}
        every = sum(value.const_value.nbytes for value in graph.initializers.values() if value.const_value is not None)
        slow = widened_for_time(units, pace(units, profile), every - 3 * sum(stored.values()))
    return widened(units, profile, slow)


class WeightSearch:
    """Quantizes weights of copies of one float model, by ``tuned`` integers where there are any."""

    def __init__(
        self, model: ir.Model, profile: QuantProfile, tuned: Mapping[str, Tuned], options: ExportOptions
    ) -> None:
        self._model, self._profile, self._tuned, self._options = model, profile, tuned, options
        self._rungs: list[Mapping[str, object]] = []
        self._fewest: Quality | None = None
        units = find_units(model.graph, profile)
        self._pace = pace(units, profile) if profile.costs else None
        self._paces = {name: pace(units, own) for name, own in devices(units, profile)}
        self.start = Widths(first_wide(model.graph, units, profile, size_first=options.size_first))

    def run(self, reference: Reference | None) -> Chosen:
        """The fewest bits that keep enough of what ``reference`` says, the noisiest layers the first to get more."""
        if reference is None:
            return self._chosen(self.start, None)
        self._fewest = quality = self._quality(reference, self.start)
        narrow = self._profile.weight == "int4"
        self._told("int4" if narrow else "int8", self.start, quality)
        keeps = self._options.accept_loss or self._options.size_first
        if keeps or is_enough(quality, self._options):
            return self._chosen(self.start, quality)
        noisy = self._noisy()
        everything = frozenset(noisy)
        if narrow:
            found = self._shortest(reference, noisy, lambda names: Widths(self.start.wide | names), "some int8", "int8")
            if found is not None:
                return found
        found = self._shortest(reference, noisy, lambda names: Widths(everything, names), "some float", "float")
        if found is not None:
            return found
        untouched = Widths(everything, everything, others=False)
        return self._chosen(untouched, self._quality(reference, untouched))

    def apply(self, model: ir.Model, widths: Widths) -> None:
        """Quantize the weights of a copy, in place."""
        if not widths.others:
            return
        units = [unit for unit in find_units(model.graph, self._profile) if unit.name not in widths.real]
        corrected: Corrected = {name: one.weight for name, one in self._tuned.items()}
        wide = {unit.name: nearest_wide(unit) for unit in units if unit.name in widths.wide and is_candidate(unit)}
        narrow = self._profile.weight == "int4"
        quantize_weights(model, tuple(units), self._profile, {**corrected, **wide} if narrow else corrected)

    def _shortest(
        self,
        reference: Reference,
        names: Sequence[str],
        widths: Callable[[frozenset[str]], Widths],
        some: Name,
        every: Name,
    ) -> Chosen | None:
        """The shortest start of ``names``, by doubling and then halving; None where not all of them are enough."""
        tried = dict[int, Quality]()

        def good(count: int) -> bool:
            tried[count] = self._quality(reference, widths(frozenset(names[:count])))
            return is_enough(tried[count], self._options)

        low, high = 0, 1
        while high < len(names) and not good(high):
            low, high = high, 2 * high
        high = min(high, len(names))
        if high not in tried and not good(high):
            self._told(every, widths(frozenset(names)), tried[high])
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if good(middle) else (middle, high)
        made = widths(frozenset(names[:high]))
        self._told(some if high < len(names) else every, made, tried[high])
        return self._chosen(made, tried[high])

    def _chosen(self, widths: Widths, quality: Quality | None) -> Chosen:
        share = None if self._pace is None else self._pace.share(widths.wide, widths.real)
        return Chosen(widths, quality, self._fewest, tuple(self._rungs), share)

    def estimates(self, widths: Widths) -> Estimates:
        """Milliseconds on each device that the user named."""
        return {
            name: (own.share(widths.wide, widths.real) * own.float_ns / 1e6, own.float_ns / 1e6)
            for name, own in self._paces.items()
        }

    def _told(self, name: Name, widths: Widths, quality: Quality) -> None:
        copy = self._model.clone()
        self.apply(copy, widths)
        told: dict[str, object] = {"rung": name, "good": is_enough(quality, self._options), "snr_db": quality.snr_db}
        told |= {"snr_db_p5": quality.p5_db, "agreement": quality.agreement, "bytes": weight_bytes(copy)}
        self._rungs.append({**told, "reconstruction_db": quality.reconstruction_db})

    def _noisy(self) -> list[str]:
        """Names of the layers, the noisiest first."""
        units = filter(is_candidate, find_units(self._model.graph, self._profile))
        return [unit.name for unit in sorted(units, key=self._level)]

    def _level(self, unit: Unit) -> tuple[float, str]:
        """SNR in dB of the layer, or of its weight where no data has tuned it; for sorting."""
        if unit.name in self._tuned:
            return self._tuned[unit.name].best_db, unit.name
        weight = constant(unit.weight_or_fail[1])
        noise = np.square(nearest(unit, self._profile).real() - weight).sum() / max(
            float(np.square(weight).sum()), 1e-30
        )
        return float(decibels(noise)), unit.name

    def _quality(self, reference: Reference, widths: Widths) -> Quality:
        copy = self._model.clone()
        self.apply(copy, widths)
        return reference.quality(copy)


def told(chosen: Chosen, requested: str) -> list[str]:
    """What was done instead of the fewest bits."""
    if len(chosen.rungs) < 2 or chosen.quality is None or chosen.fewest is None:
        return []
    first, last = chosen.rungs[0], chosen.rungs[-1]
    real, wide = len(chosen.widths.real), len(chosen.widths.wide - chosen.widths.real)
    became = " and ".join(
        f"{count} {'layer has' if count == 1 else 'layers have'} {kind} weights"
        for count, kind in ((wide, "int8"), (real, "float32"))
        if count
    )
    share = float(str(last["bytes"])) / max(float(str(first["bytes"])), 1.0)
    return [
        f"{requested} everywhere keeps {chosen.fewest.told()}, too little; {became}. That keeps "
        f"{chosen.quality.told()}, with {share:.2f} times the bytes; --accept-loss takes the fewest bits"
    ]
