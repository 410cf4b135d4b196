"""Which integer kernels give neighbours of the graph's integers: a file with one is held against a looser bound."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.targets.tflite.graph import Operation, Program, Subgraph
from convertkit.targets.tflite.tensor import DYNAMIC, QuantParams, Tensor

BYTES = QuantParams.per_tensor(0.1, 0)
X, Y = (Tensor(name, (1, 4, 4, 3), "int8", quantization=BYTES) for name in "xy")
FREE = Tensor("f", (DYNAMIC, 4, 4, 3), "int8", quantization=BYTES)
KNOWN, COMPUTED = Tensor("k", (4,), "int32", np.array([1, 4, 4, 3], np.int32)), Tensor("c", (4,), "int32")


@pytest.mark.parametrize(
    ("code", "inputs", "rough"),
    [
        ("PRELU", (FREE, X), True),
        ("PRELU", (X, X), False),
        ("LEAKY_RELU", (X,), True),
        ("TRANSPOSE_CONV", (COMPUTED, X, X), True),
        ("TRANSPOSE_CONV", (KNOWN, X, X), False),
        ("CONV_2D", (X, X), False),
    ],
)
def test_kernels_that_round_twice(code: str, inputs: tuple[Tensor, ...], rough: bool) -> None:
    y = inputs[0] if inputs[0] is FREE else Y
    program = Program([Subgraph("main", [X], [y], [Operation(code, inputs, (y,), {})])])
    assert program.rounds_its_own_way is rough
