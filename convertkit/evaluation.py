"""Accuracy of an artifact on labelled data, and the gate on how much of it may be lost."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import FeedError, UsageError
from convertkit.stage import Feed, Outputs, Runner

LABEL = "label"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure over a whole data set; ``in_points`` says accuracy-like (0 to 100, higher is better)."""

    name: str
    value: Callable[[Array, Array], float]
    in_points: bool

    def drop(self, before: float, after: float) -> float:
        """What is lost: points for accuracy-like metrics, percent of the float value otherwise."""
        if self.in_points:
            return before - after
        return 100 * (after - before) / before if before else float("inf") if after > before else 0.0


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


def top1(labels: Array, scores: Array) -> float:
    """Share of samples, in percent, whose largest score is at the label; ``scores`` is (samples, classes)."""
    flat = scores.reshape(len(labels), -1)
    return 100.0 * float((flat.argmax(-1) == labels.reshape(-1)).mean())


def auc(labels: Array, scores: Array) -> float:
    """Area under the ROC curve in percent, for labels 0/1; the last class's score counts (rank statistic)."""
    positive = labels.reshape(-1).astype(bool)
    score = scores.reshape(len(positive), -1)[:, -1].astype(np.float64)
    if positive.all() or not positive.any():
        raise FeedError("metric auc needs samples of both classes; the evaluation data has one")
    _, index, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[index]
    good, bad = int(positive.sum()), int((~positive).sum())
    return 100.0 * float((ranks[positive].sum() - good * (good + 1) / 2) / (good * bad))


def mse(labels: Array, values: Array) -> float:
    """Mean squared difference to the label, which has the output's shape."""
    return float(((values.reshape(labels.shape).astype(np.float64) - labels) ** 2).mean())


_BUILT_IN = {
    "top1": Metric("top1", top1, in_points=True),
    "auc": Metric("auc", auc, in_points=True),
    "mse": Metric("mse", mse, in_points=False),
}


def find_metric(name: str | None, labels: Array, outputs: Array) -> Metric:
    """The metric called ``name`` (``pkg.mod:func`` for one's own, in points); by default top1 or mse.

    ``pkg.mod:func`` takes ``(labels, outputs)``, both stacked over samples, and returns a float where
    more is better.
    """
    if name is None:
        classes = np.issubdtype(labels.dtype, np.integer) and outputs.reshape(len(labels), -1).shape[1] > 1
        return _BUILT_IN["top1" if classes else "mse"]
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError(f"--metric {name}: unknown; use {', '.join(_BUILT_IN)} or pkg.mod:func")
    try:
        return Metric(name, getattr(importlib.import_module(module), function), in_points=True)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--metric {name}: cannot be imported: {error}") from error


def predictions(runner: Runner, feeds: Iterable[Feed]) -> tuple[Array, Array]:
    """Labels and the first output for every sample, stacked."""
    labels, outputs = [], []
    for feed in feeds:
        if LABEL not in feed:
            raise FeedError(f"evaluation data has no array {LABEL!r}")
        answer = runner.run({name: value for name, value in feed.items() if name != LABEL})
        labels.append(np.asarray(feed[LABEL]))
        outputs.append(_first(answer))
    if not labels:
        raise FeedError("evaluation data holds no samples")
    return np.stack(labels).reshape(len(labels), *labels[0].shape[1:]), np.concatenate(outputs)


def _first(outputs: Outputs) -> Array:
    return next(iter(outputs.values()))
