"""Golden vectors of a delivered package, given to its model again as the test on the device gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.errors import SourceError
from convertkit.stage import Replay, Runner
from convertkit.state import with_state
from convertkit.targets.mobile.golden import ON_THE_FLY, RELATIVE
from convertkit.targets.mobile.ports import Port, Ports

_FLOATS = ("float32", "fp16")


def replayed(artifact: Artifact, runner: Runner, ports: Ports, folders: Iterable[Path], precision: str) -> Replay:
    """What the packaged model answers to the vectors of the one folder that holds them; ``SourceError`` for others.

    The files are those of :func:`vector_files`, ``ports`` those of the typed API.
    """
    found = list(folders)
    if len(found) != 1:
        raise SourceError(f"{artifact.path.name}: golden vectors lie in {len(found)} folders, expected one")
    places = sorted((each for each in found[0].iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
    with runner:
        wrong = [text for place in places for text in _wrong(artifact, ports, runner, place, precision)]
    return Replay(len(places), tuple(wrong))


def _wrong(artifact: Artifact, ports: Ports, runner: Runner, place: Path, precision: str) -> Iterator[str]:
    feed = {port.name: _taken(port, _read(port, place, "in")) for port in ports.given}
    found = runner.run(with_state(artifact, feed))
    for port in ports.returned:
        wanted, got = _read(port, place, "out"), port.got(np.asarray(found[port.name]))
        finite = np.isfinite(wanted)
        away = float(np.abs(got[finite].astype(np.float64) - wanted[finite]).max(initial=0.0))
        greatest = float(np.abs(wanted[finite].astype(np.float64)).max(initial=0.0))
        share = RELATIVE if precision in _FLOATS else ON_THE_FLY
        allowed = (share * greatest if port.api == "float32" else 0.0) + (port.scale or 0.0)
        if away > allowed:
            yield f"vector {int(place.name) + 1}: output {port.name} differs by {away:.3g}, allowed {allowed:.3g}"


def _read(port: Port, place: Path, role: str) -> Array:
    """The elements of ``in_NAME.bin`` or ``out_NAME.bin``."""
    file = place / f"{role}_{port.variable}.bin"
    if not file.is_file():
        raise SourceError(f"{place} has no {file.name}")
    data = np.frombuffer(file.read_bytes(), np.dtype(port.api).newbyteorder("<"))
    if data.size != port.count:
        raise SourceError(f"{file} holds {data.size} elements, and {port.name} has {port.count}")
    return data.reshape(port.shape)


def _taken(port: Port, value: Array) -> Array:
    """In the source's layout."""
    return value.transpose(np.argsort(port.spec.perm)) if port.spec.perm else value
