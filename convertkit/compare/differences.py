"""``convertkit diff A B``: what differs between two models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike, fspath

from convertkit.artifact import TensorSpec
from convertkit.compare.agreement import Verification, compared
from convertkit.errors import ConvertKitError, MissingFramework
from convertkit.looking.inspection import Inspection, inspected
from convertkit.looking.opened import Opened, opened_both
from convertkit.looking.tables import Shown, Table, count_text, shape_text
from convertkit.looking.timing import as_run, one_feed, prepared, runner_of
from convertkit.operators import Operator
from convertkit.progress import Silent
from convertkit.recipe import ImageOptions, InputSpec, WavOptions
from convertkit.text import size_text
from convertkit.turns import Interval, in_turns, ratio

_MOST_ROWS = 30
_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: what it is, and how it is on each side; empty where a side has none."""

    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Shown):
    """What differs between two models.

    ``layers`` are operators of one name that are others, or that one side alone has; none where the two have few names
    in common.  ``numerics`` is the verification of the second against the first, None where it was not asked for or the
    interfaces do not fit; ``slower`` how many times as long a call of the second takes, where that was asked for.
    """

    first: str
    second: str
    interface: tuple[Change, ...]
    sizes: tuple[Change, ...]
    operators: tuple[Change, ...]
    precision: tuple[Change, ...]
    layers: tuple[Change, ...]
    metadata: tuple[Change, ...]
    numerics: Verification | None
    slower: Interval | None
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether nothing that was looked at differs, the time of a call aside."""
        kinds = (self.interface, self.sizes, self.operators, self.precision, self.layers, self.metadata)
        exact = self.numerics is None or all(diff.max_abs == 0 for diff in self.numerics.report.diffs)
        return not any(kinds) and exact and (self.numerics is None or self.numerics.passed)

    @property
    def headline(self) -> str:
        """What differs, in a line."""
        if self.same:
            return f"{self.first} and {self.second}: no difference found"
        kinds = ("interface", "sizes", "operators", "precision", "layers", "metadata")
        named = [kind for kind in kinds if getattr(self, kind)]
        told = (
            f"{self.first} and {self.second} differ in {', '.join(named)}" if named else f"{self.first}, {self.second}"
        )
        return told if self.numerics is None else f"{told}; {self.numerics.headline}"

    def tables(self) -> tuple[Table, ...]:
        """A table for each kind of difference, and the verification."""
        head = ("", "first", "second")
        found = [
            Table(name, head, tuple((each.what, each.first, each.second) for each in getattr(self, name)[:_MOST_ROWS]))
            for name in ("interface", "sizes", "operators", "precision", "layers", "metadata")
        ]
        if self.slower is not None:
            found.append(Table("a call of the second takes", ("", ""), (("times as long", self.slower.text),)))
        return (*found, *(() if self.numerics is None else self.numerics.tables()))

    def remarks(self) -> tuple[str, ...]:
        """What could not be compared."""
        left = len(self.layers) - _MOST_ROWS
        more = (f"{left} more layers differ",) if left > 0 else ()
        return (*self.notes, *more, *(() if self.numerics is None else self.numerics.remarks()))


def diff(
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    numerics: bool = True,
    time: bool = False,
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
) -> Difference:
    """What differs between two models: interface, sizes, operators, precision, numerics, and latency on demand.

    Raises what ``export`` raises where one cannot be opened.

    Args:
        first: a path, ``pkg.mod:callable`` or a delivered folder.
        second: another one.
        numerics: run both and compare, as ``verify`` does.
        time: take calls of both in turns; of ONNX and TFLite files.
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

    """
    data = {"calib": calib, "calib_samples": calib_samples, "images": images, "wav": wav, "seed": seed}
    how = {"input": input, "model": model, "signature": signature, "trust": trust, "timeout": timeout}
    with opened_both(fspath(first), fspath(second), how, data) as (one, other):
        sides = inspected(one), inspected(other)
        slower = _slower(one, other) if time else None
        verified, notes = _verified(one, other) if numerics else (None, ())
        return Difference(
            sides[0].path,
            sides[1].path,
            _changes(*map(_interface, sides)),
            _changes(*map(_sizes, sides)),
            _changes(*map(_kinds, sides)),
            _changes(*map(_precisions, sides)),
            _layers(sides[0].operators, sides[1].operators),
            _changes(*(side.metadata for side in sides)),
            verified,
            slower,
            notes,
        )


def _changes(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Change, ...]:
    """Entries that differ, in the order of the first, then what the second alone has."""
    keys = dict.fromkeys((*first, *second))
    pairs = ((key, first.get(key, ""), second.get(key, "")) for key in keys)
    return tuple(Change(*each) for each in pairs if each[1] != each[2])


def _interface(side: Inspection) -> dict[str, str]:
    told = {f"input {spec.name}": _port(spec) for spec in side.inputs}
    return told | {f"output {spec.name}": _port(spec) for spec in side.outputs}


def _port(spec: TensorSpec) -> str:
    """As an app gives or gets it."""
    quantized = spec.quantization
    scale = "" if quantized is None else f", (x - {quantized.zero_point}) * {quantized.scale:.6g}"
    return f"{spec.dtype} {shape_text(spec.shape)}{scale}"


def _sizes(side: Inspection) -> dict[str, str]:
    parameters = "" if side.parameters is None else f"{side.parameters:,}"
    told = {"format": side.format, "bytes": f"{side.size_bytes:,}", "parameters": parameters}
    return told | {"operators": str(len(side.operators)), "multiply-adds": count_text(side.macs)}


def _kinds(side: Inspection) -> dict[str, str]:
    return {kind: str(count) for kind, count in sorted(Counter(each.kind for each in side.operators).items())}


def _precisions(side: Inspection) -> dict[str, str]:
    counts, sizes = Counter[str](), Counter[str]()
    for each in side.operators:
        counts[each.precision or "whole numbers"] += 1
        sizes[each.precision or "whole numbers"] += each.weight_bytes
    return {name: f"{counts[name]} operators, {size_text(sizes[name])}" for name in sorted(counts)}


def _layers(first: Sequence[Operator], second: Sequence[Operator]) -> tuple[Change, ...]:
    """By name; none where less than half of the smaller graph's names are in the other."""
    sides = [{each.name: _layer(each) for each in operators} for operators in (first, second)]
    shared = len(sides[0].keys() & sides[1].keys())
    return _changes(*sides) if 2 * shared >= min(map(len, sides)) else ()


def _layer(each: Operator) -> str:
    weights = f", {size_text(each.weight_bytes)}" if each.weight_bytes else ""
    return f"{each.kind} {each.precision or 'whole numbers'}{weights}"


def _verified(one: Opened, other: Opened) -> tuple[Verification | None, tuple[str, ...]]:
    try:
        return compared(one, other, Silent()), ()
    except MissingFramework:
        raise
    except ConvertKitError as refusal:  # another interface, or a model that does not run
        return None, (f"what they compute is not compared: {str(refusal).splitlines()[0]}",)


def _slower(one: Opened, other: Opened) -> Interval:
    """How many times as long a call of the second takes."""
    with ExitStack() as stack:
        calls = {}
        for name, found in (("first", one), ("second", other)):
            artifact = as_run(found)
            runner = stack.enter_context(runner_of(artifact, None))
            calls[name] = prepared(runner, one_feed(artifact))
        times = in_turns(calls, 2 * _SECONDS)
    return ratio(times["second"], times["first"])
