"""The fused integer LSTM kernel.

LiteRT keeps its state from call to call in variables; ``Interpreter.reset_all_variables`` starts afresh.
Source: ``tensorflow/lite/kernels/unidirectional_sequence_lstm.cc``, ``lstm_eval.cc`` (8x8_16).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import constant_of
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor

fused_lstm = Registry()

_TANH = 4
_TO_TFLITE = (0, 2, 3, 1)
"""Input, forget, cell, output: the kernel's order, as places in ONNX's."""


@fused_lstm.lowers_custom("FusedLSTM", domain=OWN)
def lstm(b: Builder, x: Tensor, w: Tensor, r: Tensor, bias: Tensor, *, facts: str) -> Tensor:
    """Constants are stacked by gate; ``facts`` is the importer's JSON, with ``time_major`` as it is here."""
    known: dict[str, Any] = json.loads(facts)
    units = constant_of(r, "the recurrent weights").shape[-1]
    batch = x.shape[1 if known["time_major"] else 0]
    states = [_variable(b, (batch, units), known[name]) for name in ("output_state", "cell_state")]
    inputs: list[Tensor | None] = [x, *_gates(b, w, known["input_weights"]), *_gates(b, r, known["recurrent_weights"])]
    inputs += [None] * 3 + [*_gates(b, bias, known["biases"])] + [None] * 2 + [*states] + [None] * 4
    options = {
        "fused_activation_function": _TANH,
        "cell_clip": float(known["cell_clip"]),
        "proj_clip": 0.0,
        "time_major": bool(known["time_major"]),
    }
    shape = (*x.shape[:2], units)
    y = b.emit("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, shape, "int8", options, b.results[0])
    operation = b.producer(y)
    assert operation is not None
    operation.intermediates = tuple(
        Tensor(f"{b.prefix}/intermediate_{n}", (0,), each["dtype"], None, _parameters(each))
        for n, each in enumerate(known["intermediates"])
    )
    return y


def _gates(b: Builder, stacked: Tensor, parameters: Sequence[dict[str, Any]]) -> list[Tensor]:
    values = constant_of(stacked, "a gate's constants")
    return [b.constant(np.ascontiguousarray(values[gate]), _parameters(parameters[gate])) for gate in _TO_TFLITE]


def _variable(b: Builder, shape: tuple[int, ...], parameters: dict[str, Any]) -> Tensor:
    dtype: DType = parameters["dtype"]
    return Tensor(f"{b.prefix}/state", shape, dtype, None, _parameters(parameters), variable=True)


def _parameters(given: dict[str, Any]) -> QuantParams | None:
    return QuantParams.per_tensor(given["scale"], given["zero_point"]) if "scale" in given else None
