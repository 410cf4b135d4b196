"""``convertkit verify A B``: whether two models of any formats compute the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from convertkit.artifact import Artifact
from convertkit.compare.aligning import Aligned, align
from convertkit.compare.tolerance import between
from convertkit.errors import ConvertKitError, NotProven, ParityError
from convertkit.findings.runtimes import runtime_of, source_runtime
from convertkit.formatting import diff_text, parity_text
from convertkit.looking.opened import Opened, opened_both
from convertkit.looking.tables import Shown, Table, shape_text
from convertkit.parity.ill_conditioned import well_conditioned
from convertkit.parity.replay import compare_recordings, record
from convertkit.parity.truth import AskTruth
from convertkit.parity.values import ParityReport, Recording
from convertkit.progress import Progress, Silent
from convertkit.recipe import ExportOptions, ImageOptions, InputSpec, WavOptions
from convertkit.stage import FeedSource, Tolerance
from convertkit.twins import Twins

if TYPE_CHECKING:
    from convertkit.parity.values import TensorDiff
    from convertkit.steps.recording import Runs


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Shown):
    """Whether ``second`` computes what ``first`` computes.

    ``runtimes`` executed them.  ``report`` has the numbers of each output, the tolerance and its reason, and what the
    float64 twin explains.
    """

    first: str
    second: str
    runtimes: tuple[str, str]
    report: ParityReport
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the two agree, and the comparison could tell."""
        return self.report.passed

    @property
    def failure(self) -> ParityError | None:
        """Why not, with its exit code; None where they agree."""
        if self.passed:
            return None
        if self.report.failures:
            return ParityError(f"{self.second} does not compute what {self.first} does: {self.report.failures[0]}")
        hint = "  try   --calib with samples of real data, so that there is something to compare"
        return NotProven(f"not verified: {self.report.unproven}\n{hint}")

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        usual = self.report.feeds - len(self.report.edges)
        where = f"on {usual} inputs and {len(self.report.edges)} edge inputs"
        if self.passed:
            return f"verified: {self.second} computes what {self.first} does {where}; {parity_text(self.report)}"
        told = self.report.failures[0] if self.report.failures else self.report.unproven
        return f"NOT verified: {self.second} against {self.first} {where}: {told}"

    def tables(self) -> tuple[Table, ...]:
        """A row for each output."""
        rows = tuple(map(_row, self.report.diffs))
        allowed = _allowed(self.report.tolerance)
        ran = (("first", self.first, self.runtimes[0]), ("second", self.second, self.runtimes[1]))
        return (
            Table(
                f"outputs, allowed {allowed} ({self.report.tolerance.reason})",
                ("name", "dtype", "shape", "difference", "max abs", "SNR"),
                rows,
                (4, 5),
            ),
            Table("run by", ("", "", ""), ran),
        )

    def remarks(self) -> tuple[str, ...]:
        """How interfaces were matched, warnings, and what the float64 twin explains."""
        return (*self.notes, *self.report.warnings, *self.report.explained, *self.report.failures[1:])


def _row(diff: TensorDiff) -> tuple[str, ...]:
    shown = diff_text(diff)
    return diff.name, diff.dtype, shape_text(diff.shape), shown, f"{diff.max_abs:.3g}", f"{diff.snr_db:.1f} dB"


def _allowed(tolerance: Tolerance) -> str:
    if tolerance.relative is not None:
        return f"max |difference| / max |reference| of {tolerance.relative:.0e}"
    return f"at least {tolerance.snr_db:g} dB" if tolerance.snr_db is not None else f"{tolerance.lsb:g} LSB"


def verify(
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    calib: object = None,
    calib_samples: int | None = None,
    images: str | ImageOptions | None = None,
    wav: str | WavOptions | None = None,
    input: str | InputSpec | Sequence[str | InputSpec] = (),
    model: str | None = None,
    signature: str | None = None,
    trust: str | Iterable[str] = (),
    timeout: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Verification:
    """Whether two models of any formats compute the same, on usual and on edge inputs.

    Where they differ by more than float32 arithmetic does, the float64 twin of the first decides, as in an export.
    What says how to open a model holds for those of the two that it can be for.  Raises ``ParityError`` where their
    interfaces cannot be compared, and what ``export`` raises where one cannot be opened.

    Args:
        first: the reference: a path, ``pkg.mod:callable`` or a delivered folder.
        second: what is held against it.
        calib: samples of real data, as in ``export``; generated inputs without it.
        calib_samples: use only so many samples, evenly spread.
        images: how images of a folder become inputs.
        wav: how WAV files of a folder become inputs.
        input: shapes that the files do not hold, as in ``export``.
        model: ``pkg.mod:factory`` of the module that a state_dict belongs to.
        signature: signature of a SavedModel or of a TFLite file.
        trust: code in the files that may be executed: ``pickle``, ``lambda``, ``pyfunc``.
        timeout: longest time for one call of a framework, in seconds.
        seed: seed of generated inputs.
        progress: told of what is being done.

    """
    told = progress or Silent()
    told.status("opening")
    data = {"calib": calib, "calib_samples": calib_samples, "images": images, "wav": wav, "seed": seed}
    how = {"input": input, "model": model, "signature": signature, "trust": trust, "timeout": timeout}
    with opened_both(fspath(first), fspath(second), how, data) as (one, other):
        return compared(one, other, told)


@dataclass(frozen=True, slots=True)
class Ran:
    """Both on the same inputs: ``onnx`` is the first as ONNX, None where it cannot be."""

    before: Recording
    after: Recording
    how: Aligned
    onnx: Artifact | None
    tolerance: Tolerance
    generated: bool
    notes: tuple[str, ...]

    def judged(self, *, with_twin: bool = True) -> ParityReport:
        """The second held against the first; what is lossy on inputs on which noise tells anything.

        Without the float64 twin, which takes long for a large model, whatever is beyond the tolerance is a failure.
        """
        with Twins() as twins:
            truth = _silent if self.onnx is None or not with_twin else twins.ask(self.onnx)
            return _judged(self.before, self.after, self.tolerance, truth, generated=self.generated)


def compared(first: Opened, second: Opened, progress: Progress) -> Verification:
    """Run both on the same inputs and hold the second against the first."""
    ran = run_both(first, second, progress)
    runtimes = (_runtime(first), ran.after.runtime or _runtime(second))
    progress.status("comparing outputs")
    return Verification(first.given, second.given, runtimes, ran.judged(), ran.notes)


def run_both(first: Opened, second: Opened, progress: Progress) -> Ran:
    """What both compute for samples or generated inputs, and for edge inputs."""
    notes, onnx = list[str](), None
    try:
        onnx = first.onnx()  # before anything runs: a framework that has computed may not be forked any more
    except ConvertKitError as refusal:
        notes.append(f"no float64 twin of {first.title}: {str(refusal).splitlines()[0]}")
    tolerance = between(first, second)
    how = align(first.artifact, second.artifact, (first.title, second.title))
    options = _at_sizes(first.options, how)
    data = samples(options, first.artifact)
    progress.status(f"running {first.title}")
    before = reference(first, first, onnx, options, data)
    progress.status(f"running {second.title}")
    with how.runner(second.runner()) as runner:
        title = f"{second.title} ({second.artifact.format})"
        after = record(title, how.artifact, runner, before.feeds, before.edges)
    return Ran(before, after, how, onnx, tolerance, data is None, (*how.notes, *notes))


def _silent(feed: Any) -> None:
    """The truth where there is no twin."""


def _at_sizes(options: ExportOptions, how: Aligned) -> ExportOptions:
    """With the sizes at which the second is fixed."""
    return dataclasses.replace(options, static=tuple({**how.sizes, **dict(options.static)}.items()))


def samples(options: ExportOptions, artifact: Artifact) -> FeedSource | None:
    """What ``--calib`` names, None without it."""
    from convertkit.data import asked
    from convertkit.steps.describe import with_sizes

    return asked.calibration(options, with_sizes(artifact, options).inputs)


def reference(
    first: Opened, runs: Runs, onnx: Artifact | None, options: ExportOptions, data: FeedSource | None
) -> Recording:
    """What the first computes for samples or generated inputs, and for edge inputs, where ``runs`` runs it."""
    from convertkit.steps.recording import Recorder

    readable = first.artifact
    if first.is_onnx and onnx is not None:
        readable = dataclasses.replace(first.artifact, format="onnx")  # for what its graph tells of its inputs
    recording = Recorder(options, readable, runs, data).recording()
    return dataclasses.replace(recording, title=f"{first.title} ({first.artifact.format})")


def _judged(
    before: Recording, after: Recording, tolerance: Tolerance, truth: AskTruth, *, generated: bool
) -> ParityReport:
    """The comparison; of numbers that change on purpose on the inputs on which noise tells anything."""
    report = compare_recordings(before, after, tolerance, truth)
    if report.failures and tolerance.lossy and generated:
        places = well_conditioned(before, truth)
        if places and len(places) < len(before.feeds):
            return compare_recordings(before.only(places), after.only(places), tolerance, truth)
    return report


def _runtime(model: Opened) -> str:
    return source_runtime(model.artifact) if model.delivered is None else runtime_of(model.artifact)
