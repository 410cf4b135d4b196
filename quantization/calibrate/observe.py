"""Running the float model over calibration feeds and measuring its tensors on the way.

The extremes of every tensor are reduced inside the graph, and of its values an evenly strided part
leaves it, so that memory and time hardly depend on what is observed.  State goes from call to call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import FeedError
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.probes import Probe, instrumented
from convertkit.quantization.calibrate.resume import EVERY, Checkpoint
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.stage import Feed

_AT_ONCE = 16
"""Samples whose values are counted together: counting has a fixed cost."""
_ALL_COUNT = 2 * EVERY
_STRIDE = 4
"""Behind the first samples the values of every fourth one count, four times: millions more would tell nothing new."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One probe, the first name of what it measures, its statistics and the values that wait to be counted."""

    probe: Probe
    name: str
    statistics: Statistics
    may_mark: bool
    waiting: list[Array] = field(default_factory=list)

    def take(self, answer: Mapping[str, Array], counts: bool) -> None:
        """One more sample; whether its values count, or those of a neighbour stand for them."""
        low, high, values = self.probe.read(answer)
        if values.size == 0:
            return
        if not (math.isfinite(low) and math.isfinite(high)) and not self._is_marked(low, high, values):
            raise self._no_numbers()
        self.statistics.extremes(low, high)
        if counts:
            self.waiting.append(values[np.isfinite(values)] if self.may_mark else values)

    def _is_marked(self, low: float, high: float, values: Array) -> bool:
        """Whether there are infinities, and nothing else that is not a number."""
        return self.may_mark and not (math.isnan(low) or math.isnan(high) or np.isnan(values).any())

    def count(self, weight: int) -> None:
        """Count what waits."""
        if self.waiting:
            values = np.concatenate(self.waiting)
            self.waiting.clear()
            if not np.isfinite(values).all():
                raise self._no_numbers()
            self.statistics.histogram.add(values, weight)

    def _no_numbers(self) -> FeedError:
        fault = "the data is outside the model's domain"
        return FeedError(f"calibration drives tensor {self.name!r} to NaN or infinity: {fault}")


def observe(
    model: ir.Model,
    names: Sequence[str],
    feeds: Iterable[Feed],
    initial_state: Mapping[str, Array],
    checkpoint: Checkpoint | None = None,
    *,
    infinities: bool = False,
) -> dict[str, Statistics]:
    """Statistics of the named values of the main graph over all feeds.  ``model`` is not changed.

    With ``infinities`` a value may hold some, as padding in front of a maximum does, where the model's outputs do not:
    its extremes say so, and its histogram counts what is finite.

    With a ``checkpoint`` the work goes on where a killed run left it, and leaves states itself; not for
    models with state, whose samples depend on the ones before.
    """
    copy, probes = instrumented(model, names)
    kept = None if initial_state else checkpoint
    done, found = kept.load(names) if kept else (0, {name: Statistics() for name in names})
    first: dict[Probe, _Seen] = {}
    given = {str(value.name) for value in model.graph.outputs}
    for name in names:
        seen = first.setdefault(probes[name], _Seen(probes[name], name, found[name], infinities and name not in given))
        found[name] = seen.statistics
    wanted = [output for probe in first for output in probe.outputs]
    every, weight = tuple(first.values()), 1
    answers = run_all(open_session(copy), wanted, islice(feeds, done, None), initial_state)
    for index, answer in enumerate(answers, start=done):
        weight = 1 if index < _ALL_COUNT else _STRIDE
        for seen in every:
            seen.take(answer, counts=index % weight == 0)
        # In turns, so that samples are computed all the while; all before a state is left or the weight changes.
        complete = (index + 1) % EVERY == 0
        for seen in every if complete else every[index % _AT_ONCE :: _AT_ONCE]:
            seen.count(weight)
        if kept and complete:
            kept.save(index + 1, found)
    for seen in every:
        seen.count(weight)
    return found


def extend(
    found: Mapping[str, Statistics], model: ir.Model, feeds: Iterable[Feed], initial_state: Mapping[str, Array]
) -> None:
    """Extend the extremes of ``found`` by those over more feeds, in place; values are not counted.

    These are edge inputs: a tensor that one of them drives to NaN or infinity has no bound.
    """
    copy, probes = instrumented(model, tuple(found))
    wanted = [output for probe in dict.fromkeys(probes.values()) for output in probe.outputs]
    for answer in run_all(open_session(copy), wanted, feeds, initial_state):
        for name, statistics in found.items():
            low, high, _ = probes[name].read(answer)
            bounded = math.isfinite(low) and math.isfinite(high)
            statistics.low = min(statistics.low, low) if bounded else -math.inf
            statistics.high = max(statistics.high, high) if bounded else math.inf
