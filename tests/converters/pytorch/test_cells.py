"""Scripted cells convert, in the loop that they are called in."""

from __future__ import annotations

from pathlib import Path

import cell_models
import numpy as np
import pytest

import convertkit

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_cells_in_a_loop_that_data_ends(tmp_path: Path, target: str) -> None:
    import torch

    model = cell_models.Stepped().eval()
    torch.jit.script(model).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", target, input=("x:5,3,4",), output=tmp_path / "out")
    for seed in range(4):
        x = (np.random.default_rng(seed).standard_normal((5, 3, 4)) * seed).astype(np.float32)
        (answer,) = result.run({"x": x}).values()
        np.testing.assert_allclose(answer, model(torch.from_numpy(x)).detach().numpy(), atol=2e-6)
