"""``convertkit bisect A B``: the first value inside of two models that differs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Array
from convertkit.compare.agreement import run_both
from convertkit.compare.aligning import align
from convertkit.compare.bodies import Found, deepest
from convertkit.compare.looked_at import conversion, looked_into, matched, probe, telling
from convertkit.compare.scan import Departure, Level, Sides, inner_tolerance, scan
from convertkit.errors import ParityError, UsageError
from convertkit.formatting import diff_text
from convertkit.looking.opened import Opened, opened_both
from convertkit.looking.tables import Shown, Table
from convertkit.progress import Progress, Silent
from convertkit.recipe import ImageOptions, InputSpec, WavOptions

BUDGET_DB = 20.0
"""What one operator of a quantized model keeps at least: where an export begins to warn."""
_MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class Finding:
    """A value of the second that differs from what the first's nodes make of the values before it.

    ``nodes`` are these nodes, the last one makes the value; ``kind`` is the operator that makes it in the second.
    ``expected`` and ``got`` are the elements at ``worst_index``.  ``origin`` is the line of the user's own source.
    """

    name: str
    other: str
    kind: str
    nodes: tuple[str, ...]
    origin: str
    reads: tuple[str, ...]
    difference: str
    failure: str
    worst_index: tuple[int, ...]
    expected: float | None
    got: float | None
    repro: str = ""
    within: tuple[str, ...] = ()
    """The nodes in whose bodies the value is computed, the outermost first, with the turn of a loop."""

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        where = "".join(f", in the body of {each}" for each in reversed(self.within))
        where += f", from {self.origin}" if self.origin else ""
        among = self.nodes[-1] if len(self.nodes) == 1 else f"one of {', '.join(self.nodes)}"
        return f'"{self.other}" ({self.kind}) differs from what {among} computes{where}: {self.difference}'


_OUT_OF_RANGE = (
    "looked at on generated inputs, which may leave the ranges that integers were calibrated for: "
    "--calib takes samples of real data"
)


@dataclass(frozen=True, slots=True, repr=False)
class Bisection(Shown):
    """Where ``second`` differs from ``first``.

    ``feed`` is the input it was looked for on, ``matched`` how many values of the two were held against each other, of
    ``values`` that the second computes, ``by`` how they were found.  ``findings`` are in the order of the graph, the
    first one alone unless all were asked for.  ``agrees`` says whether the outputs agree on all inputs.
    """

    first: str
    second: str
    feed: str
    agrees: bool
    by: str
    matched: int
    values: int
    findings: tuple[Finding, ...]
    levels: tuple[Level, ...]
    notes: tuple[str, ...]

    @property
    def failure(self) -> ParityError | None:
        """The first difference with its exit code; None where there is none."""
        if self.findings:
            return ParityError(f"{self.second}: {self.findings[0].sentence}")
        return (
            None if self.agrees else ParityError(f"{self.second} differs from {self.first}, and no value inside does")
        )

    @property
    def headline(self) -> str:
        """The first difference in a line."""
        if self.findings:
            return f"{self.second}: {self.findings[0].sentence}"
        outputs = "the outputs agree" if self.agrees else "although the outputs differ"
        said = f"none of {self.matched} values differs by more than its precision allows"
        return f"{self.second}: {said} from what {self.first} computes, {outputs}"

    def tables(self) -> tuple[Table, ...]:
        """Differences, and the values that lose most."""
        rows = tuple(
            (each.name, each.kind, " ".join(each.nodes), each.origin, each.difference) for each in self.findings
        )
        low = sorted((each for each in self.levels if each.local_db < 200), key=lambda each: each.local_db)[:_MOST_ROWS]
        losses = tuple((each.name, each.kind, f"{each.local_db:.1f} dB", f"{each.snr_db:.1f} dB") for each in low)
        return (
            Table("departs", ("value", "operator", "nodes of the first", "source line", "difference"), rows),
            Table("values that lose most", ("value", "operator", "by itself", "up to here"), losses, (2, 3)),
        )

    def remarks(self) -> tuple[str, ...]:
        """How values were matched, and what was written."""
        told = f"{self.matched} of {self.values} values matched by {self.by}, looked at on input {self.feed}"
        return (told, *self.notes, *(f"written: {each.repro}" for each in self.findings if each.repro))


def bisect(
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    every: bool = False,
    budget: float = BUDGET_DB,
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
) -> Bisection:
    """The first value inside of two models that differs, and the node that makes it.

    Each value of the second is held against what the first's own nodes make of the second's values before it, so that a
    fault shows where it is.  Floats are held against float32 arithmetic, with the float64 twin as the judge; where
    numbers change on purpose, each operator has a budget of noise.  Raises what ``verify`` raises.

    Args:
        first: the reference: a path, ``pkg.mod:callable`` or a delivered folder.
        second: what is held against it.
        output: a folder for the part of both models that differs, its inputs, and a script that shows it.
        every: go on behind the first difference.
        budget: signal over noise in dB that an operator keeps at least where numbers change on purpose.
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
    if output is not None and Path(output).exists() and any(Path(output).iterdir()):
        raise UsageError(f"{output} exists and is not empty; name another folder")
    data = {"calib": calib, "calib_samples": calib_samples, "images": images, "wav": wav, "seed": seed}
    how = {"input": input, "model": model, "signature": signature, "trust": trust, "timeout": timeout}
    told.status("opening")
    with (
        opened_both(fspath(first), fspath(second), how, data) as (one, other),
        tempfile.TemporaryDirectory(prefix="convertkit-bisect-") as place,
    ):
        into = None if output is None else Path(output)
        if not one.is_onnx and one.artifact.format in plugins.runner_names() and not _is_alike(one, other):
            found = _Search(other, one, Path(place), told, every=every, budget=budget).result(into)
            note = f"looked at the other way round: values of {one.title} against the nodes of {other.title}"
            return replace(found, notes=(*found.notes, note))
        return _Search(one, other, Path(place), told, every=every, budget=budget).result(into)


def _is_alike(one: Opened, other: Opened) -> bool:
    return one.artifact.format == other.artifact.format


class _Search:
    """Two open models on their way to a result."""

    def __init__(
        self, first: Opened, second: Opened, folder: Path, progress: Progress, *, every: bool, budget: float
    ) -> None:
        self._progress = progress
        self._first, self._second, self._folder = first, second, folder
        self._every, self._budget = every, budget
        self._onnx = first.onnx()
        self._inner = looked_into(second)

    def result(self, output: Path | None) -> Bisection:
        """Run both, find the input that tells most, and look through the values on that one."""
        ran = run_both(self._first, self._second, self._progress)
        report = ran.judged(with_twin=False)
        place = telling(ran, report.departures)
        notes = [*ran.notes, *conversion(self._first, self._onnx, ran.before, place)]
        if ran.tolerance.lossy and self._first.options.calib is None:
            notes.append(_OUT_OF_RANGE)
        probes = probe(replace(self._onnx, format="onnx")), probe(self._inner)
        how = align(self._onnx, self._inner, (self._first.title, self._second.title))
        sides = Sides(self._onnx, probes, how, ran.before.fed(place))
        mine, theirs = (each.inner() for each in probes)
        allowed = [each for each in (self._first.conversion, ran.tolerance) if each is not None]
        whole = next((each for each in allowed if each.lossy), ran.tolerance)
        pairs, by = matched(sides, mine, theirs, lossy=whole.lossy)
        tolerance = inner_tolerance(whole, self._budget)
        found = scan(sides, mine, pairs, tolerance, self._folder, self._progress, every=self._every)
        tops = found.departures if self._every else found.departures[:1]
        kept = [deepest(Found(each, sides, self._inner), tolerance, self._folder, self._progress) for each in tops]
        notes += list(dict.fromkeys(note for each in kept for note in _within_bodies(each.departure)))
        agrees = report.passed or (not kept and ran.judged().passed)
        return Bisection(
            self._first.given,
            self._second.given,
            ran.before.name_of(place),
            agrees,
            by,
            len(pairs),
            len(theirs),
            tuple(self._finding(each, number, output) for number, each in enumerate(kept, 1)),
            found.levels,
            tuple(notes),
        )

    def _finding(self, place: Found, number: int, output: Path | None) -> Finding:
        found = place.departure
        worst = found.diff.worst_index
        fits = found.expected.shape == found.got.shape and len(worst) == found.expected.ndim
        repro = ""
        if output is not None:
            from convertkit.compare.repro import write

            folder = output if not self._every else output / f"{number:02}"
            repro = str(write(folder, found, place.sides, place.second))
        origins = (
            node.origin for node in (found.pair.reference, *reversed(found.nodes), found.pair.other) if node.origin
        )
        return Finding(
            found.pair.reference.name,
            found.pair.other.name,
            found.pair.other.kind,
            tuple(node.title for node in found.nodes),
            next(origins, ""),
            tuple(pair.other.name for pair in found.given),
            diff_text(found.diff),
            found.failure,
            worst,
            _element(found.expected, worst) if fits else None,
            _element(found.got, worst) if fits else None,
            repro,
            place.within,
        )


_BODIES = frozenset({"If", "Loop", "Scan"})


def _within_bodies(found: Departure) -> Iterator[str]:
    """What to say where the difference may arise in the body of a node, in which nothing was found."""
    for node in found.nodes:
        if node.kind in _BODIES:
            case = "the case that --output writes holds that node with its bodies, and its inputs"
            yield f"the values in the bodies of {node.title} do not tell, or are not looked at; {case}"


def _element(values: Array, index: tuple[int, ...]) -> float | None:
    return float(values[index]) if values.dtype.kind in "fiub" else None
