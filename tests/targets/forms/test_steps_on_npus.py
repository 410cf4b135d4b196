"""Recurrent layers, and divisions behind them, in integers on NPUs: written step by step, nothing left to the CPU."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import convertkit

RNG = np.random.default_rng(5)
TARGETS = {"qnn": "onnxruntime_qnn", "litert-npu": "onnxruntime_qnn", "ethos-u": "ethosu"}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(kind: str) -> onnx.ModelProto:
    """Three steps of one layer of five states, divided by a number."""
    width = GATES[kind] * 5
    proto = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]> g (float[3,1,8] x) => (float[3,1,5] y)
        <float third = {{3.0}}> {{
        h = {kind} <hidden_size = 5> (x, w, r) s = Squeeze (h, one) y = Div (s, third) }}""")
    stored = {"w": RNG.normal(size=(1, width, 8)) / 2, "r": RNG.normal(size=(1, width, 5)) / 2}
    arrays = {**{name: value.astype("f4") for name, value in stored.items()}, "one": np.array([1])}
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in arrays.items())
    return proto


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("target", TARGETS)
def test_all_steps_are_integers_of_the_npu(target: str, kind: str, tmp_path) -> None:
    pytest.importorskip(TARGETS[target])
    data = [{"x": RNG.uniform(-2, 2, (3, 1, 8)).astype("f4")} for _ in range(24)]
    flags = {} if target == "qnn" else {"io_dtype": "int8"}
    made = convertkit.export(
        network(kind), target, int8=True, full_integer=True, calib=lambda: data, output=tmp_path / "out", **flags
    )
    assert float(made.report["quality"]["snr_db"]) > 25
    assert not (made.report["steps"][-1].get("diagnosis") or {}).get("cpu")
