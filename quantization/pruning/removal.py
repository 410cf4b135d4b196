"""``--prune-channels`` and ``--target-latency``: a smaller, faster model of the same form, without training.

Every group's channels are removed alone in several numbers, and the noise that reaches the outputs is measured; that
and the target's cost table decide how many each group keeps.  In models small enough all layers are then fitted
together, as after ``--prune``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.effect import held_out
from convertkit.quantization.graph.step import LossyStep
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.generalization import gap, is_seen, notes, ways_out
from convertkit.quantization.pruning.joint import fit_jointly
from convertkit.quantization.pruning.patterns import AUTO
from convertkit.quantization.pruning.priced import Counts, Prices
from convertkit.quantization.pruning.scores import Order
from convertkit.quantization.pruning.sparsify import relative_noise
from convertkit.quantization.pruning.surgery import Removed, Surgeon, described, explicit_biases
from convertkit.quantization.pruning.widths import Curve, narrowed, quickened
from convertkit.quantization.search.floor import is_enough
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.reference import Reference, affordable_samples
from convertkit.recipe import ExportOptions
from convertkit.stage import Feed, FeedSource, Stage
from convertkit.state import initial_state

_FINEST = 0.02
_SHARES = (0.05, 0.8)
"""``--prune-channels auto``: the least share that is worth its while, the most that is tried, and how finely."""
_PROBED = (8, 64)
"""Least and most samples on which the noise of single groups is measured …"""
_PROBES = 1e11
"""… and the multiply-adds that this may cost."""
_PLACES = (0.125, 0.25, 0.5, 0.75)
"""The shares of a group that are removed alone, to measure what that costs."""
_NEARLY = 0.01


@dataclass(frozen=True, slots=True)
class _Made:
    """A smaller model, how many units its groups keep, and what is left of the outputs on held-out samples."""

    removed: Removed
    counts: Counts
    quality: Quality | None


@dataclass(slots=True)
class PruneChannels(LossyStep):
    """Removes a share of all channels that can go, as many as the gate allows, or what brings the time down."""

    share: str | None
    latency: float | None
    profile: QuantProfile
    calibration: FeedSource | None = None
    choices: ExportOptions = field(kw_only=True)

    name = "prune-channels"
    version = "5"

    @property
    def options(self) -> Mapping[str, object]:
        return {"prune_channels": self.share, "target_latency": self.latency, "profile": self.profile.name,
                "calibrated": self.calibration is not None}  # fmt: skip

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the smaller model; ``diagnosis`` tells how many channels every layer had and has."""
        model = load_model(source.path)
        prepare(model)
        explicit_biases(model.graph)
        state = initial_state(source)
        measuring, judging = ((), ()) if self.calibration is None else split(self.calibration)
        work = _Work(model, list(measuring), judging, state, self)
        if not work.surgeon.groups:
            raise Unsupported("--prune-channels finds no channel that could go: something looks at all of them")
        made = self._chosen(work)
        share = work.share(made.counts)
        if not share:
            raise Unsupported(f"--prune-channels {self.share} removes no whole channel of layers as narrow as these")
        before, after = work.prices.total(work.whole), work.prices.total(made.counts)
        seen = is_seen(made.quality, self.calibration)
        told = f"{share:.1%} of the channels are gone"
        told = told if made.quality is None else f"{told}; kept are {made.quality.told(seen=seen)}"
        apart = None if self.choices.recover is not None else work.gap(made)  # training tells its own
        self.diagnosis = {
            "groups": work.described(made.counts),
            "channels": share,
            "estimated_time": after / before if before else None,
            "held_out": held_out(made.quality, is_all=seen),
            "notes": [told, *notes(apart)],
            "ways_out": ways_out(apart),
        }
        return save_model(made.removed.model, workdir / "pruned.onnx", f"{self.name} {self.version}",
                          source.initial_state)  # fmt: skip

    def _chosen(self, work: _Work) -> _Made:
        self.progress.status("measuring channels")
        if self.latency is not None:
            return work.made(work.quickened(self.latency))
        if self.share != AUTO:
            return work.made(work.narrowed(float(self.share or 0)))
        (low, high), best = _SHARES, None
        while high - low > _FINEST or best is None:
            share = low if best is None and high - low <= _FINEST else (low + high) / 2
            counts = work.narrowed(share)
            tried = work.made(counts, fit=False)
            assert tried.quality is not None
            if not is_enough(tried.quality, self.choices):
                tried = work.made(counts)
            assert tried.quality is not None
            if is_enough(tried.quality, self.choices):
                low, best = share, tried
            elif share == low:
                raise Unsupported(
                    f"--prune-channels auto: even {share:.0%} of the channels cost too much, {tried.quality.told()}",
                    ways_out=("more calibration data", "--max-drop with more points", "--prune"),
                )
            else:
                high = share
        return best


class _Work:
    """One model with its channels in the order in which they go, their curves and their prices."""

    def __init__(
        self, model: ir.Model, feeds: Sequence[Feed], judging: Sequence[Feed], state: Mapping[str, Array],
        step: PruneChannels,
    ) -> None:  # fmt: skip
        self._model, self._feeds, self._judging, self._state, self._step = model, feeds, judging, state, step
        self.surgeon = Surgeon(model, feeds, state, step.choices.seed)
        self._orders = self.surgeon.orders()
        self.whole = tuple(len(order.units) for order in self._orders)
        self.sizes = tuple(group.size for group in self.surgeon.groups)
        integers = step.choices.quantized
        self.prices = Prices(
            model, self._orders, step.profile, integers=integers, feed=feeds[0] if feeds else None, state=state
        )
        self._curves: Sequence[Curve] = ()
        self._reference = Reference(model.clone(), judging, state) if judging else None

    def share(self, counts: Counts) -> float:
        """Of all channels that could go, what goes."""
        kept = sum(size * count / whole for size, count, whole in zip(self.sizes, counts, self.whole, strict=True))
        return 1 - kept / sum(self.sizes)

    def gap(self, made: _Made) -> str | None:
        """What fitted and held-out samples keep, where these are far apart."""
        if made.quality is None:
            return None
        return gap(self._model, made.removed.model, self._feeds, made.quality, self._state)

    def described(self, counts: Counts) -> list[Mapping[str, object]]:
        """Every group for the report."""
        groups = zip(self.surgeon.groups, self._kept(counts), strict=True)
        return [described(self.surgeon.channels, group, kept) for group, kept in groups]

    def narrowed(self, share: float) -> Counts:
        """How many units stay where a share of all channels goes."""
        return narrowed(self.curves(), self.prices, self.sizes, share)

    def quickened(self, share: float) -> Counts:
        """How many stay where the time becomes a share of what it was; ``Unsupported`` where it cannot."""
        counts = quickened(self.curves(), self.prices, share)
        reached = self.prices.total(counts) / self.prices.total(self.whole)
        if reached > share + _NEARLY:
            raise Unsupported(
                f"--target-latency {share:g}: the cost table says {reached:.2f} of the time with as few channels as "
                "may stay; nothing less can be reached by channels alone",
                ways_out=(f"--target-latency {reached + _NEARLY:.2f}", "--int8"),
            )
        return counts

    def made(self, counts: Counts, *, fit: bool = True) -> _Made:
        """The model with so many units; its layers fitted together where held-out samples come out nearer."""
        step = self._step
        step.progress.status("removing channels")
        removed = self.surgeon.without(self._kept(counts))
        if self._reference is None:
            return _Made(removed, counts, None)
        before = self._reference.quality(removed.model.clone())
        if not fit:
            return _Made(removed, counts, before)
        fitted = removed.model.clone()
        if not fit_jointly(self._model, fitted, self._feeds, self._judging, self._state, step.choices.seed,
                           step.progress, removed.kept):  # fmt: skip
            return _Made(removed, counts, before)
        after = self._reference.quality(fitted.clone())
        if after.before_db <= before.before_db:
            return _Made(removed, counts, before)
        return _Made(Removed(fitted, removed.kept), counts, after)

    def curves(self) -> Sequence[Curve]:
        """What the outputs lose with each group's units, measured where there is data."""
        if not self._curves:
            self._curves = (
                [Curve(order.loss, measured=False) for order in self._orders] if not self._feeds else self._measured()
            )
        return self._curves

    def _measured(self) -> Sequence[Curve]:
        work = max(sum(map(multiply_adds, self._model.graph)), 1.0)
        count = min(len(self._feeds), affordable_samples(self._model, *_PROBED))
        probes = self._feeds[:: -(-len(self._feeds) // count)]
        places = _PLACES[:: -(-len(_PLACES) // max(1, int(_PROBES / (work * len(probes) * len(self._orders)))))]
        reference = Reference(self._model.clone(), probes, self._state)
        progress = self._step.progress
        return [
            self._curve(reference, place, order, places)
            for place, order in progress.track(enumerate(self._orders), len(self._orders), "measuring channels")
        ]

    def _curve(self, reference: Reference, place: int, order: Order, places: Sequence[float]) -> Curve:
        """The loss that the moments tell, scaled by what is measured with some units gone."""
        counts = sorted({max(1, min(len(order.units) - 1, round(each * len(order.units)))) for each in places})
        ratios = []
        for gone in counts:
            alone = tuple(whole - gone if i == place else whole for i, whole in enumerate(self.whole))
            noise = relative_noise(reference, self.surgeon.without(self._kept(alone), restore=False).model)
            ratios.append(noise / max(float(order.loss[gone]), 1e-30))
        every = np.arange(len(order.loss))
        scale = np.exp(np.interp(every, counts, np.log(np.maximum(ratios, 1e-30))))
        return Curve(np.maximum.accumulate(order.loss * scale))

    def _kept(self, counts: Counts) -> list[Array]:
        return [order.kept(count) for order, count in zip(self._orders, counts, strict=True)]


_: type[Stage] = PruneChannels
