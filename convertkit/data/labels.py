"""Labels that do not belong to a model's outputs, told before a gate passes because of them."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import FeedError

_SIGMAS = 2.0
"""Standard errors above chance from which on an accuracy is believed to be one."""


def check_classes(labels: Array, scores: Array) -> None:
    """``FeedError`` for labels that are not classes of ``scores`` (samples, classes), with what to write instead."""
    classes = scores.shape[1]
    if classes < 2:
        return
    if is_one_hot(labels, classes):
        raise FeedError(
            f"the labels are one-hot, {labels.dtype} of the shape {'×'.join(map(str, labels.shape))}; "
            "store the class of each sample: label = label.argmax(1)"
        )
    if labels.size != len(labels):
        return
    if np.issubdtype(labels.dtype, np.floating):
        whole = np.array_equal(labels, np.rint(labels)) and labels.min() >= 0 and labels.max() <= classes
        if not whole:
            raise FeedError(
                f"the labels are {labels.dtype} and no whole numbers, and the output has {classes} scores for each "
                "sample; store classes as integers, or choose --metric"
            )
        raise FeedError(
            f"the labels are {labels.dtype} that hold whole numbers; they look like classes, "
            "store them as such: label = label.astype('int64')"
        )
    low, high = int(labels.min()), int(labels.max())
    if low >= 0 and high < classes:
        return
    if low >= 1 and high == classes:
        raise FeedError(
            f"the labels are {low} to {high}, and the output has {classes} classes, 0 to {classes - 1}: they count "
            "from 1; store label - 1"
        )
    raise FeedError(f"the labels are {low} to {high}, and the output has {classes} classes, 0 to {classes - 1}")


def is_one_hot(labels: Array, classes: int) -> bool:
    """Whether every sample has a 1 among zeros, in a row as long as there are classes."""
    rows = labels.reshape(len(labels), -1)
    if rows.shape[1] != classes or classes < 2 or labels.dtype.kind not in "fiub":
        return False
    return bool((np.isin(rows, (0, 1))).all() and (rows.sum(1) == 1).all())


def chance_of_top1(labels: Array, scores: Array, value: float) -> str:
    """Why an accuracy ``value`` (percent) says that data and model do not belong together; empty where it does not."""
    rows, truth = scores.reshape(len(labels), -1), labels.reshape(-1)
    chance, count = 1 / rows.shape[1], len(truth)
    error = math.sqrt(chance * (1 - chance) / count)
    if value / 100 > chance + _SIGMAS * error:
        return ""
    best = rows.argmax(-1)
    shifts = {shift: float((best == truth + shift).mean()) for shift in (-1, 1)}
    shift, reached = max(shifts.items(), key=lambda item: item[1])
    hint = "its preprocessing (--images, --normalization, --wav) or the order of its classes is another one"
    if reached > chance + 2 * _SIGMAS * error and reached > 2 * value / 100:
        hint = f"with label {'+' if shift > 0 else '-'} 1 it would be {100 * reached:.1f} %"
    return (
        f"the source itself has {value:.4g} % right on {count} samples, and guessing among {rows.shape[1]} classes has "
        f"{100 * chance:.4g} %: {hint}"
    )


def chance_of_auc(labels: Array, value: float) -> str:
    """The same for the area under the ROC curve, in percent: 50 is guessing, below it the two classes are swapped."""
    good = int(labels.astype(bool).sum())
    bad = labels.size - good
    error = 100 * math.sqrt((good + bad + 1) / (12 * good * bad))
    if value > 50 + _SIGMAS * error:
        return ""
    swapped = value < 50 - _SIGMAS * error
    hint = "1 and 0 are swapped; store 1 - label" if swapped else "its preprocessing is another one"
    return f"the source itself has an AUC of {value:.4g} % on {labels.size} samples, and guessing has 50 %: {hint}"
