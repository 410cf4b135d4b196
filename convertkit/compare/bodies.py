"""A value that an If or a Loop makes differs: the value inside of its body that does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.compare.aligning import align
from convertkit.compare.looked_at import matched, probe
from convertkit.compare.scan import Departure, Sides, scan
from convertkit.looking.opened import ONNX_FILES
from convertkit.onnx.bodies import Control, body_model, control
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Recording
from convertkit.progress import Progress
from convertkit.stage import Feed, Tolerance

_MOST_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """A departure, the two models in which it was found, and the bodies that it lies in, the outermost first."""

    departure: Departure
    sides: Sides
    second: Artifact
    within: tuple[str, ...] = ()


def deepest(found: Found, tolerance: Tolerance, folder: Path, progress: Progress) -> Found:
    """The first departure in the body of the node where ``found`` lies, as deep as bodies go; itself where none is.

    Both models have to be ONNX, with the same kind of node there.
    """
    inside = _Body.of(found, folder)
    if inside is None or (turn := inside.first_that_differs(tolerance)) is None:
        return found
    sides = Sides(inside.first, inside.probes, inside.how, turn.feed)
    mine, theirs = (each.inner() for each in sides.probes)
    pairs, _ = matched(sides, mine, theirs, lossy=tolerance.lossy)
    departures = scan(sides, mine, pairs, tolerance, folder, progress, every=False).departures
    if not departures:
        return found
    where = (*found.within, f"{inside.title}{turn.text}")
    return deepest(Found(departures[0], sides, inside.second, where), tolerance, folder, progress)


@dataclass(frozen=True, slots=True)
class _Turn:
    feed: Feed
    text: str


class _Body:
    """The same body of two models, given what the second computes around it."""

    def __init__(self, title: str, sides: tuple[Artifact, Artifact], given: list[Array], outer: list[Array]) -> None:
        self.title, (self.first, self.second) = title, sides
        self.how = align(self.first, self.second, (title, title))
        self.probes = probe(self.first), probe(self.second)
        self._given, self._outer = given, outer
        self.most_turns: int | None = None

    @classmethod
    def of(cls, found: Found, folder: Path) -> _Body | None:
        """None where one of the two is not an If or a Loop of ONNX, or reads values that cannot be matched."""
        pair, reference, second = found.departure.pair, found.sides.reference, found.second
        if second.format not in ONNX_FILES:
            return None
        mine, theirs = control(reference.path, pair.reference.name), control(second.path, pair.other.name)
        if mine is None or theirs is None or mine.kind != theirs.kind:
            return None
        values = _values(found, theirs)
        attribute = _attribute(theirs, values)
        names = _counterparts(found, mine.reads[attribute])
        if sorted(names.values()) != sorted(theirs.reads[attribute]):
            return None
        given = _first_turn(theirs, values)
        outer = [values[name] for name in names.values()]
        place = Path(tempfile.mkdtemp(prefix="body-", dir=folder))
        bodies = tuple(
            body_model(file.path, output, attribute, given, list(zip(read, outer, strict=True)), place / f"{side}.onnx")
            for side, file, output, read in (
                ("first", reference, pair.reference.name, names.keys()),
                ("second", second, pair.other.name, names.values()),
            )
        )
        made = cls(pair.reference.title, (bodies[0], bodies[1]), given, outer)
        if theirs.kind == "Loop":
            made.most_turns = int(values[theirs.inputs[0]].reshape(())) if theirs.inputs[0] else _MOST_TURNS
        return made

    def first_that_differs(self, tolerance: Tolerance) -> _Turn | None:
        """What the bodies are given when their outputs first differ."""
        for turn, (before, after) in self._turns():
            outputs = tuple(replace(spec, lsb=None) for spec in self.first.outputs)
            artifact = replace(self.first, outputs=outputs)
            expected, got = (Recording("", artifact, (turn.feed,), (dict(each),)) for each in (before, after))
            if compare_recordings(expected, got, tolerance).failures:
                return turn
        return None

    def _turns(self) -> Iterator[tuple[_Turn, tuple[Mapping[str, Array], Mapping[str, Array]]]]:
        outer = {f"outer_value_{number}": value for number, value in enumerate(self._outer)}
        given, count = list(self._given), self.most_turns
        with OnnxRunner(self.first) as first, self.how.runner(OnnxRunner(self.second)) as second:
            for number in range(min(1 if count is None else count, _MOST_TURNS)):
                feed = outer | {f"body_input_{place}": value for place, value in enumerate(given)}
                after = second.run(feed)
                yield _Turn(feed, "" if count is None else f", turn {number + 1}"), (first.run(feed), after)
                results = [np.asarray(after[f"body_output_{place}"]) for place in range(len(self.first.outputs))]
                if count is None or not results[0].reshape(()):
                    return
                given = [np.array(number + 1, np.int64).reshape(given[0].shape), *results[: len(given) - 1]]


def _values(found: Found, node: Control) -> dict[str, Array]:
    """What the second's node and its bodies are given."""
    names = dict.fromkeys((*filter(None, node.inputs), *(name for body in node.reads.values() for name in body)))
    feed = found.sides.how.given(found.sides.feed)
    known = {**node.stored, **{name: np.asarray(value) for name, value in feed.items()}}
    wanted = [name for name in names if name not in known]
    return known | dict(found.sides.probes[1].values(feed, wanted) if wanted else {})


def _attribute(node: Control, values: Mapping[str, Array]) -> str:
    if node.kind == "Loop":
        return "body"
    return "then_branch" if bool(values[node.inputs[0]].reshape(())) else "else_branch"


def _first_turn(node: Control, values: Mapping[str, Array]) -> list[Array]:
    """What the body's own inputs are: for a Loop the number of the turn, whether to go on, and what is carried."""
    if node.kind == "If":
        return []
    going = values[node.inputs[1]] if len(node.inputs) > 1 and node.inputs[1] else np.array(True)
    return [np.array(0, np.int64), going.reshape(()), *(values[name] for name in node.inputs[2:])]


def _counterparts(found: Found, names: tuple[str, ...]) -> dict[str, str]:
    """The second's names of the values that the reference calls ``names``."""
    known = {pair.reference.name: pair.other.name for pair in found.departure.given}
    return {name: known.get(name, found.sides.how.names.get(name, name)) for name in names}
