"""What pre- and post-processing compute, in plain NumPy: the reference that the model's operators are held against."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.processing.words import Postprocess, Preprocess


def preprocessed(pixels: Array, how: Preprocess, size: tuple[int, int], *, channels_first: bool) -> Array:
    """``pixels`` (N, height, width, channels) of bytes as the model takes them: float32 of ``size``, normalised."""
    top, left, height, width = how.cut
    cut = pixels[:, top : top + height, left : left + width].astype(np.float32)
    scaled = bilinear(cut, size) if (height, width) != size else cut
    coloured = scaled[..., ::-1] if how.bgr else scaled
    normal = (coloured - np.array(how.mean, np.float32)) / np.array(how.std, np.float32)
    return np.ascontiguousarray(normal.transpose(0, 3, 1, 2) if channels_first else normal)


def bilinear(pixels: Array, size: tuple[int, int]) -> Array:
    """(N, H, W, C) in another size: centres of pixels stay where they are, borders are repeated, no antialiasing."""
    for axis, count in ((1, size[0]), (2, size[1])):
        old = pixels.shape[axis]
        places = np.clip((np.arange(count) + 0.5) * (old / count) - 0.5, 0, old - 1)
        low = np.floor(places).astype(np.int64)
        shape = [1] * pixels.ndim
        shape[axis] = count
        part = (places - low).astype(np.float32).reshape(shape)
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
