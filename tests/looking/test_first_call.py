"""A process that is measured leaves nothing, however it ends."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from convertkit.looking import first_call
from convertkit.workers.process import Worker
from tests import onnx_models


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def test_a_first_call_is_measured(place):
    model = str(onnx_models.write(place, onnx_models.mlp(), "mlp.onnx"))
    found = first_call.in_new_process(model, 1, {"x": np.ones((1, 5), np.float32)})
    assert found["load_ms"] > 0
    assert not [*(place / "temporary").iterdir()]


def test_what_a_killed_one_has_written_goes(place, monkeypatch):
    """``convertkit bench`` stopped in the middle: the worker is killed with a model open."""
    seen = []

    class Stopped(Worker):
        def call(self, *what):
            self.start()
            left = Path(self._env["TMPDIR"], "convertkit-look-a", "source")
            left.mkdir(parents=True)
            seen.append(left)
            raise KeyboardInterrupt

    monkeypatch.setattr(first_call, "Worker", Stopped)
    with pytest.raises(KeyboardInterrupt):
        first_call.in_new_process("mlp.onnx", 1, {})
    assert (place / "temporary") in seen[0].parents
    assert not [*(place / "temporary").iterdir()]
