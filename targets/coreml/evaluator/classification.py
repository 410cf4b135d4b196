"""The answer of a classifier.

Source: coremltools, mil/ops/defs, classify.py.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

classification = Table()


@classification.computes("classify")
def _classify(*, probabilities: Array, classes: Array) -> tuple[Array, Array]:
    """The name of the largest one, and all of them in the order of the names, which are a dictionary's keys."""
    numbers = probabilities.reshape(-1)
    if numbers.shape != classes.shape:
        raise ValueError(f"{len(classes)} names for {numbers.size} probabilities")
    return np.array(classes[int(numbers.argmax())], object), numbers.astype(np.float64)
