"""What pre- and post-processing compute, in plain NumPy: the reference that the model's operators are held against."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.processing.words import Postprocess, Preprocess


def preprocessed(pixels: Array, how: Preprocess, size: tuple[int, int], *, channels_first: bool) -> Array:
    """``pixels`` (N, height, width, channels) of bytes as the model takes them: float32 of ``size``, normalised.

    Computed in float64, and rounded once at the end.
    """
    top, left, height, width = how.cut
    cut = pixels[:, top : top + height, left : left + width].astype(np.float64)
    scaled = bilinear(cut, size) if (height, width) != size else cut
    coloured = scaled[..., ::-1] if how.bgr else scaled
    normal = ((coloured - np.array(how.mean)) / np.array(how.std)).astype(np.float32)
    return np.ascontiguousarray(normal.transpose(0, 3, 1, 2) if channels_first else normal)


def factor(old: int, new: int) -> np.float32:
    """The least float32 of at least ``new / old`` whose product with ``old``, rounded down, is ``new``.

    ONNX holds factors as float32, and computes sizes and places from them.
    """
    found = np.float32(new / old)
    while np.floor(float(found) * old) < new:
        found = np.nextafter(found, np.float32(np.inf))
    return found


def bilinear(pixels: Array, size: tuple[int, int]) -> Array:
    """(N, H, W, C) of float64 in another size: centres of pixels stay, borders are repeated, nothing is smoothed.

    Places are those of :func:`factor`, as in the model.
    """
    for axis, count in ((1, size[0]), (2, size[1])):
        old = pixels.shape[axis]
        places = np.clip((np.arange(count) + 0.5) / float(factor(old, count)) - 0.5, 0, old - 1)
        low = np.floor(places).astype(np.int64)
        shape = [1] * pixels.ndim
        shape[axis] = count
        part = (places - low).reshape(shape)
        before, after = pixels.take(low, axis), pixels.take(np.minimum(low + 1, old - 1), axis)
        pixels = before * (1 - part) + after * part
    return pixels


def postprocessed(scores: Array, how: Postprocess) -> tuple[Array, ...]:
    """What stands for ``scores``: themselves or probabilities, a class, or the best scores and their classes."""
    if how.softmax:
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores = raised / raised.sum(axis=-1, keepdims=True)
    if how.choice == "argmax":
        return (scores.argmax(axis=-1).astype(np.int64),)
    if how.choice == "top":
        order = np.argsort(-scores, axis=-1, kind="stable")[..., : how.top]
        return np.take_along_axis(scores, order, axis=-1), order.astype(np.int64)
    return (scores,)
