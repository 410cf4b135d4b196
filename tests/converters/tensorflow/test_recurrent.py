"""Loops that tf2onnx makes of recurrent layers become operators; near misses stay loops."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from tests.installed import needs

OPERATORS = {
    "lstm,N,T": "LSTM",
    "lstm_hard,N,T": "LSTM",
    "lstm_hard,2,5": "LSTM",
    "gru,N,T": "GRU",
    "gru,2,5": "GRU",
    "gru,N,5": "GRU",
    "gru_no_bias,N,T": "GRU",
    "gru_before,N,T": "GRU",
    "gru_before,2,5": "GRU",
    "gru_backward,N,T": "GRU",
    "gru_backward,2,5": "GRU",
    "gru_both,N,T": "GRU GRU",
    "rnn,N,T": "RNN",
    "rnn,2,5": "RNN",
    "cells,N,T": "LSTM GRU",
    "cells,2,5": "LSTM GRU",
    "layers,N,T": "GRU RNN",
    "frozen,N,T": "GRU",
    "written_out,N,T": "RNN",
}
LOOPS = (
    "masked,N,T", "sine,N,T", "small,N,T", "weighted,N,T", "one_less,N,T", "one_later,N,T", "one_state,N,T",
    "many_states,N,T", "stops,N,T",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models of the tests that are going to run."""
    needs("tf2onnx")
    folder = tmp_path_factory.mktemp("recurrent")
    script = Path(__file__).with_name("recurrent_models.py")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": os.pathsep.join(sys.path)}
    names = [each.callspec.params["name"] for each in request.session.items if each.module is request.module]
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *names], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", [*OPERATORS, *LOOPS])
def test_recurrent_layers(name: str, made: Path):
    found = collections.Counter(
        node.op_type for node in ir.load(made / f"{name}.onnx").graph if node.op_type in ("LSTM", "GRU", "RNN", "Loop")
    )
    assert found == collections.Counter(OPERATORS.get(name, "Loop").split())
    session = onnxruntime.InferenceSession(made / f"{name}.onnx", providers=["CPUExecutionProvider"])
    with np.load(made / f"{name}.npz") as numbers:
        count = len(numbers.files) // 2
        assert count >= 3
        for place in range(count):
            x = numbers[f"x{place}"]
            (got,) = session.run(None, {session.get_inputs()[0].name: x})
            # Products of loud numbers cancel to small ones, with the rounding of the large ones; kernels sum in turns.
            rounding = 3e-6 * max(1.0, float(np.abs(x).max()) / 8)
            np.testing.assert_allclose(got, numbers[f"y{place}"], rtol=0, atol=rounding)
