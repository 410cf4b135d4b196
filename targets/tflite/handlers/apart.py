"""Elements with zeros between them, as windows of a dilation and inputs of a transposed convolution have them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor


def apart(b: Builder, x: Tensor, steps: Sequence[int]) -> Tensor:
    """``steps[i] - 1`` zeros between the elements of axis ``i``; none behind the last.

    The first axis may be dynamic, and its step is 1 then.
    """
    shape = list(x.shape)
    for axis, step in enumerate(steps):
        if step == 1:
            continue
        before = DYNAMIC if shape[0] == DYNAMIC else math.prod(shape[: axis + 1])
        rows = b.reshape(x, (before, 1, math.prod(shape[axis + 1 :])))
        spaced = b.pad(rows, ((0, 0), (0, step - 1), (0, 0)))
        shape[axis] *= step
        whole = b.reshape(spaced, tuple(shape))
        shape[axis] -= step - 1
        x = b.slice(whole, (0,) * len(shape), tuple(shape))
    return x
