"""What models take in ONNX Runtime on the machine at hand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto

_WARM = 9
"""Calls that plan memory."""


class Clock(Protocol):
    """Tells nanoseconds of one call of each of a few models, on one thread; all read an input ``x`` of ``shape``."""

    def nanoseconds(
        self, models: Sequence[ModelProto], shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> list[float]: ...


@dataclass(frozen=True, slots=True)
class Here:
    """The machine at hand: models in turns, several ``rounds`` of so many ``calls``, of small models ``least_ns`` long.

    ``share`` percent of the rounds are faster than what counts: 0 is the least, for a machine that others use, too.
    """

    rounds: int
    calls: int = 3
    share: float = 25.0
    least_ns: float = 0.0

    def nanoseconds(
        self, models: Sequence[ModelProto], shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> list[float]:
        """Of the thread, so that other processes disturb little."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        sessions = [onnxruntime.InferenceSession(model.SerializeToString(), options) for model in models]
        feed = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(dtype)}
        calls = [max(self.calls, round(self.least_ns / _of_one(each, feed, _WARM))) for each in sessions]
        times: list[list[float]] = [[] for _ in sessions]
        for _ in range(self.rounds):
            for own, session, count in zip(times, sessions, calls, strict=True):
                own.append(_of_one(session, feed, count))
        return [float(np.percentile(own, self.share)) for own in times]


def _of_one(session: onnxruntime.InferenceSession, feed: Mapping[str, npt.NDArray[np.generic]], calls: int) -> float:
    start = time.thread_time_ns()
    for _ in range(calls):
        session.run(None, feed)
    return (time.thread_time_ns() - start) / calls
