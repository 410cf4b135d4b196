"""Accuracy of an artifact on labelled data, and the gate on how much of it may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from convertkit.artifact import Array
from convertkit.data.labels import chance_of_auc, chance_of_top1, check_classes, is_one_hot
from convertkit.data.user_functions import metric_function, told
from convertkit.errors import FeedError
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


def top1(labels: Array, scores: Array) -> float:
    """Share of samples, in percent, whose largest score is at the label; ``scores`` is (samples, classes)."""
    return 100.0 * float((_rows("top1", labels, scores).argmax(-1) == _one_each("top1", labels)).mean())


def auc(labels: Array, scores: Array) -> float:
    """Area under the ROC curve in percent, for labels 0/1; the last class's score counts (rank statistic)."""
    positive = _one_each("auc", labels).astype(bool)
    score = _rows("auc", labels, scores)[:, -1].astype(np.float64)
    if positive.all() or not positive.any():
        raise FeedError("metric auc needs samples of both classes; the evaluation data has one")
    _, index, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[index]
    good, bad = int(positive.sum()), int((~positive).sum())
    return 100.0 * float((ranks[positive].sum() - good * (good + 1) / 2) / (good * bad))


def mse(labels: Array, values: Array) -> float:
    """Mean squared difference to the label, which has the output's shape."""
    if values.size != labels.size:
        raise FeedError(f"metric mse: labels of the shape {_shape(labels)} for outputs of the shape {_shape(values)}")
    return float(((values.reshape(labels.shape).astype(np.float64) - labels) ** 2).mean())


def _rows(metric: str, labels: Array, scores: Array) -> Array:
    """Scores as (samples, classes)."""
    if scores.size == 0 or scores.size % len(labels):
        raise FeedError(f"metric {metric}: outputs of the shape {_shape(scores)} hold no scores for each sample")
    return scores.reshape(len(labels), -1)


def _one_each(metric: str, labels: Array) -> Array:
    if labels.size != len(labels):
        raise FeedError(f"metric {metric}: labels of the shape {_shape(labels)}; expected one class for each sample")
    return labels.reshape(-1)


def _shape(array: Array) -> str:
    return "×".join(map(str, array.shape))


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
    if name in (None, "top1") and labels.dtype.kind in "fiub":
        scores = _rows("top1", labels, outputs)
        if name is not None or labels.size == len(labels) or is_one_hot(labels, scores.shape[1]):
            check_classes(labels, scores)
    if name is None:
        classes = np.issubdtype(labels.dtype, np.integer) and _rows("top1", labels, outputs).shape[1] > 1
        return _BUILT_IN["top1" if classes else "mse"]
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    return Metric(name, partial(_own, name, metric_function(name)), in_points=True)


def at_chance(metric: Metric, labels: Array, outputs: Array, value: float) -> str:
    """Why the source's own ``value`` is no better than guessing; empty where it is, or where nobody can tell."""
    if metric is _BUILT_IN["top1"]:
        return chance_of_top1(labels, outputs, value)
    return chance_of_auc(labels, value) if metric is _BUILT_IN["auc"] else ""


def _own(name: str, function: Callable[[Array, Array], float], labels: Array, outputs: Array) -> float:
    try:
        return float(function(labels, outputs))
    except Exception as error:  # the border to the user's function
        raise FeedError(f"--metric {name} raised {told(error)}") from error


def predictions(runner: Runner, feeds: Iterable[Feed]) -> tuple[Array, Array]:
    """Labels and the first output for every sample, stacked."""
    labels, outputs = [], []
    for feed in feeds:
        if LABEL not in feed:
            raise FeedError(f"evaluation data has no array {LABEL!r}")
        answer = runner.run({name: value for name, value in feed.items() if name != LABEL})
        labels.append(np.asarray(feed[LABEL]))
        outputs.append(np.atleast_1d(_first(answer)))
    if not labels:
        raise FeedError("evaluation data holds no samples")
    return np.stack(labels).reshape(len(labels), *labels[0].shape[1:]), np.concatenate(outputs)


def _first(outputs: Outputs) -> Array:
    return next(iter(outputs.values()))
