"""Golden vectors: a few inputs with what the source computed for them, to be replayed wherever a runtime is."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError
from convertkit.parity.values import Recording
from convertkit.result import Result
from convertkit.stage import FLOAT32
from convertkit.state import save_arrays, saved_arrays

FILE = "golden.npz"
_MOST_BYTES = 4 << 20
"""Of all samples after the first, which may be as large as it is."""
_MARGIN = 2.0
"""Times what an artifact differs by where it was made: kernels of another processor round in another order."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call: arrays by the source's names, in its layout and dtypes."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def write(recording: Recording, most: int, file: Path) -> Path | None:
    """The first usual inputs of a verification and the source's outputs, as ``PLACE/inputs/NAME``.

    None where there is nothing to write: no sample is asked for, or a dtype that ``.npz`` does not hold.
    """
    arrays: dict[str, Array] = {}
    for place in range(min(most, recording.usual)):
        fresh = dict(_named(place, recording))
        size = sum(value.nbytes for value in (*arrays.values(), *fresh.values()))
        if any(value.dtype.kind in "OV" for value in fresh.values()):
            return None
        if place and size > _MOST_BYTES:
            break
        arrays |= fresh
    if not arrays:
        return None
    file.parent.mkdir(parents=True, exist_ok=True)
    save_arrays(file, arrays)
    return file


def _named(place: int, recording: Recording) -> Iterator[tuple[str, Array]]:
    for kind, values in (("inputs", recording.fed(place)), ("outputs", recording.outputs[place])):
        for name, value in values.items():
            yield f"{place}/{kind}/{name}", np.asarray(value)


def read(file: Path) -> tuple[Sample, ...]:
    """The samples of a file; ``SourceError`` where it is not one of golden vectors."""
    try:
        arrays = saved_arrays(file)
    except Exception as error:
        raise SourceError(f"{file} cannot be read: {error}") from error
    found: dict[int, dict[str, dict[str, Array]]] = {}
    for key, value in arrays.items():
        place, kind, name = (*key.split("/", 2), "", "")[:3]
        if not place.isdecimal() or kind not in ("inputs", "outputs") or not name:
            raise SourceError(f"{file} does not hold golden vectors: {key!r}")
        found.setdefault(int(place), {"inputs": {}, "outputs": {}})[kind][name] = value
    return tuple(Sample(**found[place]) for place in sorted(found))


def count(file: Path) -> int:
    """How many samples a file that :func:`write` has written holds."""
    with zipfile.ZipFile(file) as archive:
        return len({name.partition("/")[0] for name in archive.namelist()})


def bounds(result: Result, samples: tuple[Sample, ...]) -> dict[str, float]:
    """By output, what its elements may differ from the source by when the vectors are replayed.

    Twice what they differ by here, and the tolerance of float32 of the output's largest value.  Of integers and
    booleans it is the share of elements that may differ.
    """
    found: dict[str, float] = {}
    for sample in samples:
        got = result.run(sample.inputs)
        for name, wanted in sample.outputs.items():
            away = departure(wanted, got[name])
            if away is None:
                raise SourceError(f"output {name} has another shape, or is not finite where the source is")
            found[name] = max(found.get(name, 0.0), _MARGIN * away + _rounding(wanted))
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def _rounding(wanted: Array) -> float:
    if wanted.dtype.kind != "f":
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)]).astype(np.float64)
    return (FLOAT32.relative or 0.0) * float(finite.max(initial=0.0))


def departure(wanted: Array, got: Any) -> float | None:
    """The largest difference of floats, or the share of other elements; None where the two cannot be compared."""
    other = np.asarray(got)
    if other.shape != wanted.shape:
        return None
    if wanted.dtype.kind not in "fc":
        return float(np.mean(other != wanted)) if wanted.size else 0.0
    finite = np.isfinite(wanted)
    if not np.isfinite(other[finite]).all():
        return None
    away = np.abs(other[finite].astype(np.complex128) - wanted[finite].astype(np.complex128))
    return float(away.max(initial=0.0))


def replayed(result: Result, samples: tuple[Sample, ...], allowed: Mapping[str, float]) -> list[str]:
    """What differs by more than is allowed, as sentences; nothing where all outputs are as they should be."""
    failures = []
    for place, sample in enumerate(samples):
        got = result.run(sample.inputs)
        for name, wanted in sample.outputs.items():
            away = departure(wanted, got[name]) if name in got else None
            if away is None:
                failures.append(f"sample {place + 1}: output {name} has another shape or is not finite")
            elif away > allowed.get(name, 0.0):
                failures.append(f"sample {place + 1}: output {name} differs by {away:.3g}, allowed {allowed[name]:.3g}")
    return failures
