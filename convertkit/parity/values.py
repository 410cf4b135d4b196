"""What a verification hands on: recordings, differences, reports; without NumPy, as reading them needs none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convertkit.artifact import Array, Artifact
from convertkit.stage import Feed, Outputs, Tolerance


@dataclass(frozen=True, slots=True)
class Recording:
    """What an artifact returned for each of ``feeds``, in order; ``title`` names it in reports.

    ``runtime`` is what executed it, empty where the runner does not tell.

    ``edges`` names the last feeds, the edge inputs; the others are of usual values.
    """

    title: str
    artifact: Artifact
    feeds: tuple[Feed, ...]
    outputs: tuple[Outputs, ...]
    edges: tuple[str, ...] = ()
    states: tuple[Mapping[str, Array], ...] = ()
    """The state with which each call began, empty for a model without."""
    runtime: str = ""

    @property
    def usual(self) -> int:
        """How many feeds are not edge inputs."""
        return len(self.feeds) - len(self.edges)

    def name_of(self, place: int) -> str:
        """How reports call a feed."""
        return f'"{self.edges[place - self.usual]}"' if place >= self.usual else f"{place + 1}"

    def fed(self, place: int) -> Feed:
        """What the artifact was given for a feed, state included."""
        return {**self.states[place], **self.feeds[place]} if self.states else self.feeds[place]

    def calls(self, place: int) -> int:
        """How many calls the state of a feed has gone through, itself included; 1 without state."""
        return place + 1 if self.states and self.states[place] else 1

    def only(self, places: Sequence[int]) -> Recording:
        """The recording of some of its feeds alone, all of which count as usual ones."""
        feeds = tuple(self.feeds[place] for place in places)
        outputs = tuple(self.outputs[place] for place in places)
        return replace(self, feeds=feeds, outputs=outputs, edges=(), states=())


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of ``after - before`` between ``edges`` (one more than counts), for the report's plot."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorDiff:
    """How one output of an artifact differs from the reference, over all feeds.

    ``relative`` is max |difference| / max |reference|; ``max_rel`` the largest element-wise ratio
    among references that are not all but zero.  ``lsb`` is max |difference| in units of the output's
    scale and ``lsb_share`` the share of elements within one of them (None where nothing is
    quantized).  ``power`` is ``ok``, or why the comparison proves nothing.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    max_rel: float
    relative: float
    mean_abs: float
    cosine: float
    snr_db: float
    lsb: float | None
    lsb_share: float | None
    worst_index: tuple[int, ...]
    worst_feed: int
    mismatch: str
    power: str
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class Faint:
    """One slice of an output: its axis, its place there, and ``max |difference| / max |reference|`` of it alone."""

    axis: int
    place: int
    relative: float

    def of(self, array: Array) -> Array:
        """The slice of an array of the output's shape."""
        part: Array = array.take(self.place, self.axis)
        return part


@dataclass(frozen=True, slots=True)
class FeedDiff:
    """How one output differs for one feed: the largest difference and the largest reference, of finite elements.

    ``noise`` and ``signal`` are the means of their squares, ``step`` the output's scale and ``changed`` the share of
    elements that are more than half a step apart.  ``off_limit`` says that the reference stands still at its
    largest or least value, as behind a clamp, and the other result does not stand there.  ``faint`` names slices that
    differ by much of what they hold, though by little of what the output holds.
    """

    max_abs: float = 0.0
    largest: float = 0.0
    noise: float = 0.0
    signal: float = 0.0
    mismatch: str = ""
    off_limit: bool = False
    step: float | None = None
    changed: float = 0.0
    faint: tuple[Faint, ...] = ()

    @property
    def relative(self) -> float:
        """``max |difference| / max |reference|`` of this feed alone; infinite for what no number tells."""
        return math.inf if self.mismatch else ratio(self.max_abs, self.largest)


@dataclass(frozen=True, slots=True)
class Departure:
    """One output that differs by more than the tolerance for one feed.

    ``place`` is the feed's, from 0, and ``feed`` what reports call it (``"zeros"``, ``3``).  ``rough`` says that it is
    beyond a bound in dB.  ``explained`` says how the
    float64 twin of the model explains it, empty where it does not: then it is a fault.
    """

    output: str
    place: int
    feed: str
    diff: FeedDiff
    rough: bool = False
    explained: str = ""


@dataclass(frozen=True, slots=True)
class ParityReport:
    """The comparison of one artifact with an earlier one.

    ``before`` and ``after`` name the artifacts (``onnx (pytorch)``).  ``failures`` and ``warnings`` are
    sentences; ``unproven`` says why the comparison has no power, empty where it has.  ``departures`` are what was
    judged by the model's float64 twin.  ``feeds`` counts all feeds, ``edges`` the edge inputs among them.
    ``nan_on`` names the inputs on which ``before`` itself gives NaN.  ``waived`` is what ``--allow-unverified`` says:
    outputs that tell nothing pass where they are equal.
    """

    before: str
    after: str
    diffs: tuple[TensorDiff, ...]
    tolerance: Tolerance
    feeds: int
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unproven: str = ""
    departures: tuple[Departure, ...] = ()
    edges: tuple[str, ...] = ()
    waived: bool = False
    nan_on: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True only where the numbers agree and the comparison has the power to tell, or the user waives that."""
        return not self.failures and (self.waived or not self.unproven)

    @property
    def worst(self) -> TensorDiff | None:
        """The output with the largest relative difference."""
        return max(self.diffs, key=lambda diff: diff.relative, default=None)

    @property
    def explained(self) -> tuple[str, ...]:
        """How the float64 twin explains differences, one sentence each."""
        told = (each for each in self.departures if each.explained)
        return tuple(f'output "{each.output}" on input {each.feed}: {each.explained}' for each in told)


def ratio(part: float, whole: float) -> float:
    """``part / whole``; infinite where there is a part of nothing."""
    if part == 0:
        return 0.0
    return part / whole if whole else math.inf
