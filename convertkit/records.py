"""What the tasks of an export hand on to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convertkit.artifact import Artifact
from convertkit.parity.values import ParityReport, Recording
from convertkit.stage import Settled, Tolerance

_LEAST_SNR_DB = 3.0


@dataclass(frozen=True, slots=True)
class Made:
    """What a stage made, how, and what that took.

    ``options`` and ``diagnosis`` are JSON-able.  ``peak_rss_bytes`` is this process's peak during the stage, where the
    system lets it be reset.  ``settled`` is what a conversion found out about its source, ``notes`` what that says of
    itself afterwards.
    """

    stage: str
    version: str
    options: Mapping[str, object]
    tolerance: Tolerance
    artifact: Artifact
    seconds: float
    peak_rss_bytes: int
    diagnosis: Mapping[str, object] | None = None
    settled: Settled | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an artifact computed for the inputs of the verification, in how many seconds.

    ``notes`` say which inputs the source itself refuses and what executed it.  ``runtime`` is what executed an
    artifact, with its version.
    """

    recording: Recording
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a recording's notes say, without its arrays."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished step: what ran, what it made, how long it took and what the comparison found.

    ``seconds`` is the stage alone, ``parity_seconds`` the verification, which may go on beside the next stage.
    ``peak_rss_bytes`` is this process's peak during the stage (where the system lets it be reset).  ``diagnosis`` is
    what the stage itself reports beyond its artifact, JSON-able.  ``runtime`` is what executed the artifact, with its
    version.  ``cached`` says that an earlier export made it.
    """

    stage: str
    version: str
    options: Mapping[str, object]
    seconds: float
    parity_seconds: float
    peak_rss_bytes: int
    artifact: Artifact
    size_bytes: int
    versus_previous: ParityReport
    versus_source: ParityReport
    diagnosis: Mapping[str, object] | None = None
    runtime: str = ""
    cached: bool = False

    @property
    def passed(self) -> bool:
        return self.versus_previous.passed and self.versus_source.passed


@dataclass(frozen=True, slots=True)
class Bound:
    """What the steps so far allow in sum against the source."""

    relative: float = 0.0
    lossy: Tolerance | None = None
    noise_db: float | None = None
    """The lowest SNR of the outputs after the lossy step, in dB."""
    short_integers: bool = False

    def after(self, step: Tolerance) -> Bound:
        if step.lossy:
            return replace(self, lossy=step)
        short = self.short_integers or step.short_integers
        return replace(self, relative=self.relative + (step.relative or 0.0), short_integers=short)

    def measured(self, step: Tolerance, versus_source: ParityReport) -> Bound:
        """The bound once a lossy step's noise is known."""
        if not step.lossy or not versus_source.diffs:
            return self
        diffs = versus_source.diffs
        reals = [diff for diff in diffs if not diff.dtype.startswith(("int", "uint"))]  # choices are others, not noisy
        return replace(self, noise_db=min(diff.snr_db for diff in reals or diffs))

    def eased(self, step: Tolerance) -> Tolerance:
        """``step``, where a model amplifies single roundings as much as the quantization's own noise.

        A deep network may turn roundings of at most 1 LSB in every operator into a lot at its end.
        What a lowering adds must stay below what the quantization itself has cost, whatever that is.
        """
        noise = self.noise_db
        if step.lossy or step.snr_db is None or noise is None or noise >= step.snr_db:
            return step
        reason = f"{step.reason}; no more noise than the quantization itself made"
        return replace(step, snr_db=max(noise, _LEAST_SNR_DB), reason=reason)

    def tolerance(self, step: Tolerance) -> Tolerance:
        """What a step's artifact may differ from the source by."""
        if self.lossy is not None:
            return self.lossy
        if step.relative is None:
            return step
        reason = "the sum of what the steps so far may differ"
        return replace(step, relative=self.relative, reason=reason, short_integers=self.short_integers)


@dataclass(frozen=True, slots=True)
class Verified:
    """A step with both comparisons, and what the steps so far allow in sum.

    ``onnx`` is the ONNX artifact whose float64 twin tells the true values of the step, and of steps that package it.
    """

    step: StepRecord
    bound: Bound
    onnx: Artifact

    @property
    def passed(self) -> bool:
        return self.step.passed


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metric of the source and of the delivered artifact, and what was allowed."""

    metric: str
    samples: int
    before: float
    after: float
    drop: float
    max_drop: float | None

    @property
    def passed(self) -> bool:
        return self.max_drop is None or self.drop <= self.max_drop + 1e-9
