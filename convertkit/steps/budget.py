"""Choosing how an artifact is made within ``--budget``: points of the trade-off, tried one by one.

For each precision that the target has, the least share of channels is looked for with which the file fits; low rank is
tried beside it, and where the model lies deflated in a package, which is where zeros take less room, the least share of
zeros.  Nothing is trained meanwhile: ``--recover`` comes behind the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.budget import Budget, Point, amount, budget_of, measure_of
from convertkit.errors import ParityError, Unsupported
from convertkit.good_enough import LEAST_DB
from convertkit.operators import EstimatingTarget
from convertkit.recipe import ExportOptions, Precision
from convertkit.records import Made
from convertkit.stage import BuildContext, FeedSource, Target
from convertkit.steps import live
from convertkit.steps.describe import Described, with_sizes
from convertkit.steps.stages import choices, steps_of
from convertkit.tasks.task import Context, Task

_ORDER: tuple[Precision, ...] = ("float32", "fp16", "w8", "int8", "w4")
_SHARES = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")
"""Of channels that go; of these and none the least is found by halving."""
_ZEROS = ("0.5", "0.6", "0.7", "0.8", "0.9")
"""Of weights; less takes off a deflated file no more than fewer channels do."""
_LOW_RANK = "0.99"


@dataclass(frozen=True, slots=True)
class Choice:
    """What fits: the options of the artifact, and all points that were looked at."""

    precision: Precision
    prune_channels: str | None
    prune: str | None
    low_rank: str | None
    points: tuple[Point, ...]
    note: str

    def applied(self, options: ExportOptions) -> ExportOptions:
        """The export that was chosen."""
        return replace(options, budget=None, precision=self.precision, prune_channels=self.prune_channels,
                       prune=self.prune, low_rank=self.low_rank)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ChooseWithin(Task[Choice]):
    """The point of the trade-off of size, time and quality that is best within the budget."""

    described: Task[Described]
    hub: Task[Made]
    options: ExportOptions
    target: str
    data: str | None
    keeps = Choice

    @property
    def title(self) -> str:
        return f"choosing within {self.options.budget}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described, self.hub)

    def decides(self) -> Mapping[str, object] | None:
        options = replace(self.options, recover=None)  # which comes behind the choice
        return {"data": self.data, **choices(options, self.target, whole=True)}

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(live.package_of(each) for each in (*plugins.passes(), plugins.target(self.target)))

    def run(self, given: tuple[Any, ...], context: Context) -> Choice:
        """Make artifact after artifact; raises ``Unsupported`` or ``ParityError`` with the nearest where none fits."""
        described, made = given
        inputs = with_sizes(described.artifact, self.options).inputs
        data = live.calibration(self.options, inputs, context.resources)
        assert data is not None
        search = _Search(self.options, plugins.target(self.target), made.artifact, data, context)
        for precision in search.precisions():
            search.of(precision)
        return search.choice()


@dataclass(slots=True)
class _Search:
    """The points that were looked at so far."""

    options: ExportOptions
    target: Target
    hub: Artifact
    data: FeedSource
    context: Context
    points: list[Point] = field(default_factory=list)
    pruned: dict[str, Artifact] = field(default_factory=dict)
    """By what ``--prune`` says: which weights go does not depend on the precision behind."""

    @property
    def budget(self) -> Budget:
        """What must be kept to."""
        return budget_of(str(self.options.budget))

    def precisions(self) -> Iterator[Precision]:
        """Those that the target delivers, or the one that the user asked for."""
        if self.options.precision != "float32":
            yield self.options.precision
            return
        known = [part.precisions for part in plugins.parts_of(self.target, self.options)] or [self.target.precisions]
        yield from (each for each in _ORDER if all(each in names for names in known))

    def of(self, precision: Precision) -> None:
        """Look at one precision: whole, and if that is too much with the least share gone that fits."""
        first = self._point(precision, self.options)
        if self.options.pruned or (first is not None and first.fits):
            return
        self._point(precision, replace(self.options, low_rank=self.options.low_rank or _LOW_RANK))
        self._least(precision, [replace(self.options, prune_channels=share) for share in _SHARES])
        if self.options.compress and self.budget.kind == "size":
            self._least(precision, [replace(self.options, prune=share) for share in _ZEROS])

    def _least(self, precision: Precision, tried: Sequence[ExportOptions]) -> None:
        """Of ``tried``, each of which takes more away than the one before, the first that fits, by halving."""
        low, high = 0, len(tried)  # the first of them that fits lies from low on, none at the end
        while low < high:
            middle = (low + high) // 2
            point = self._point(precision, tried[middle])
            if point is not None and point.fits:
                high = middle
            elif point is None:
                return
            else:
                low = middle + 1

    def choice(self) -> Choice:
        """The best that fits."""
        budget, text = self.budget, f"--budget {self.options.budget}"
        known = [point for point in self.points if measure_of(point, budget) is not None]
        if not known:
            raise Unsupported(f"{text}: nothing could be made whose {budget.kind} is known")
        good = [point for point in known if self.options.max_drop is not None or point.snr_db >= LEAST_DB]
        fitting = [point for point in good if point.fits]
        if not fitting:
            raise self._nearest(text, known, good)
        best = max(fitting, key=_worth)
        points = tuple(replace(point, chosen=point is best) for point in self.points)
        size = amount(measure_of(best, budget) or 0.0, budget.kind)
        note = f"{text}: of {len(points)} points {best.told} keeps most in {size}"
        return Choice(best.precision, best.prune_channels, best.prune, best.low_rank, points, note)

    def _nearest(self, text: str, known: list[Point], good: list[Point]) -> Unsupported | ParityError:
        budget = self.budget
        if not good:
            best = max(known, key=_worth)
            return ParityError(
                f"{text}: nothing that could be made keeps {LEAST_DB:.0f} dB of the outputs; "
                f"the most is {best.snr_db:.1f} dB ({best.told})\n"
                "  try   --eval with labelled data and --max-drop, which judge by accuracy instead"
            )
        least = min(good, key=lambda point: measure_of(point, budget) or 0.0)
        told = f"{amount(measure_of(least, budget) or 0.0, budget.kind)} ({least.told}, {least.snr_db:.1f} dB)"
        if any(point.fits for point in known):
            return ParityError(
                f"{text}: what fits keeps less than {LEAST_DB:.0f} dB of the outputs; "
                f"the nearest that keeps more takes {told}\n"
                "  try   --eval with labelled data and --max-drop, which judge by accuracy instead"
            )
        ways = ("--recover with the nearest", "a smaller model")
        return Unsupported(f"{text}: nothing that keeps 10 dB fits; the nearest takes {told}", ways_out=ways)

    def _point(self, precision: Precision, way: ExportOptions) -> Point | None:
        options = replace(way, budget=None, recover=None, precision=precision)
        gone = [f"{share} of the {what}" for share, what in ((way.prune_channels, "channels"), (way.prune, "weights"))
                if share is not None]  # fmt: skip
        self.context.progress.status(", ".join([f"trying {precision}", *gone]))
        place = self.context.folder / str(len(list(self.context.folder.iterdir())))
        try:
            artifact = self._made(options, place)
            ms = self._ms(artifact)
        except (Unsupported, ParityError):
            return None  # no point of the trade-off: what cannot be made, or keeps too little
        snr_db, agreement = self._quality(artifact)
        point = Point(precision, options.prune_channels, options.prune, options.low_rank, artifact.size_bytes, ms,
                      snr_db, agreement, fits=False)  # fmt: skip
        taken = measure_of(point, self.budget)
        point = replace(point, fits=taken is not None and taken <= self.budget.limit)
        self.points.append(point)
        return point

    def _made(self, options: ExportOptions, place: Path) -> Artifact:
        artifact = self.hub
        for part in plugins.parts_of(self.target, options) or (self.target,):
            built = BuildContext(options, part, self.hub.sha256, self.data, self.context.progress, self.context.once)
            for name, stage in steps_of(built, part).items():
                folder = place / part.name / str(name)
                folder.mkdir(parents=True)
                known = options.prune if name == "prune" else None
                artifact = self.pruned.get(known or "") or stage.run(artifact, folder)
                if known is not None:
                    self.pruned[known] = artifact
        return artifact

    def _ms(self, artifact: Artifact) -> float | None:
        if not isinstance(self.target, EstimatingTarget):
            return None
        found = self.target.estimates(
            artifact, self.options.device or self.target.likely_devices or self.target.devices[:1]
        )
        return max(each.ms for each in found)

    def _quality(self, artifact: Artifact) -> tuple[float, float | None]:
        from convertkit.findings.quality import measure, unseen

        held_out = unseen(self.data, None)
        assert held_out is not None
        runners = ((each, plugins.runner(each)) for each in (self.hub, artifact))
        quality = measure((held_out,), next(runners), next(runners))
        return min(quality.snr_db, 200.0), quality.agreement


def _worth(point: Point) -> tuple[float, float, int]:
    return (point.agreement if point.agreement is not None else 1.0, point.snr_db, -point.bytes)
