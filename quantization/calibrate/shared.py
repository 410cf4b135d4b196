"""One calibration for all targets of a model that measure the same values of the same graph on the same samples."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.save import EXTERNAL_ABOVE_BYTES, serialized
from convertkit.progress import Progress
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.resume import EVERY, checkpoint, from_numbers, to_numbers
from convertkit.stage import Feed, Once
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True)
class Collected:
    """Statistics as values: ``places`` has a row of ``numbers`` and ``counts`` for each name that was measured.

    Names that hold the same numbers have one row.  ``numbers`` is float64 and ``counts`` int64, rows × bins.
    """

    places: tuple[int, ...]
    numbers: Array
    counts: Array

    @staticmethod
    def of(found: Mapping[str, Statistics]) -> Collected:
        """What was measured, in the order of its names."""
        rows = {id(each): each for each in found.values()}
        order = {key: row for row, key in enumerate(rows)}
        numbers = _table([to_numbers(each) for each in rows.values()], np.float64)
        counts = _table([each.histogram.counts for each in rows.values()], np.int64)
        return Collected(tuple(order[id(each)] for each in found.values()), numbers, counts)

    def statistics(self, names: Sequence[str]) -> dict[str, Statistics]:
        """New statistics by name, which whoever asks may go on with; tensors with the same numbers share one object."""
        rows = [from_numbers(*each) for each in zip(self.numbers, self.counts, strict=True)]
        return {name: rows[place] for name, place in zip(names, self.places, strict=True)}


def _table(rows: Sequence[Array | list[float]], dtype: type[np.generic]) -> Array:
    """A row each; none where a graph has nothing to measure."""
    return np.array(rows, dtype).reshape(len(rows), -1) if rows else np.zeros((0, 0), dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Calibrate(Task[Collected]):
    """Measuring named values of a prepared model over samples; its content is what it is known by."""

    model: ir.Model
    names: tuple[str, ...]
    feeds: Collection[Feed]
    part: str
    """Which of the data they are, beside their number."""
    data_sha256: str
    state: Mapping[str, Array]
    progress: Progress
    keeps = Collected

    @property
    def title(self) -> str:
        return "calibrating"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return ()

    def decides(self) -> Mapping[str, object] | None:
        """The graph, the values and the samples."""
        digest = hashlib.sha256()
        for chunk in serialized(self.model):
            digest.update(chunk)
        state = [
            [name, str(each.dtype), list(each.shape), hashlib.sha256(each.tobytes()).hexdigest()]
            for name, each in self.state.items()
        ]
        samples = [self.data_sha256, self.part, len(self.feeds)]
        return {"model": digest.hexdigest(), "names": list(self.names), "samples": samples, "state": state}

    def run(self, given: tuple[Any, ...], context: Context) -> Collected:
        return Collected.of(self.measured())

    def measured(self) -> dict[str, Statistics]:
        """Statistics by name.  A long calibration goes on where a killed one has left off."""
        tracked = self.progress.track(self.feeds, len(self.feeds), self.title)
        if len(self.feeds) < 2 * EVERY or self.state:
            return observe(self.model, self.names, tracked, self.state, infinities=True)
        where = checkpoint(self.model, self.names, self.data_sha256, f"{len(self.feeds)} samples")
        found = observe(self.model, self.names, tracked, self.state, where, infinities=True)
        where.clear()
        return found


def collected(task: Calibrate, once: Once | None) -> dict[str, Statistics]:
    """What the task measures; of one that is asked for again, what it measured before.

    Weights that one file cannot hold are not read once more to be known again.
    """
    weights = sum(each.const_value.nbytes for each in task.model.graph.initializers.values() if each.const_value)
    if once is None or weights > EXTERNAL_ABOVE_BYTES:
        return task.measured()
    found: Collected = once(task)
    return found.statistics(task.names)
