"""How exact LiteRT's SIN and COS are, as docs/how-to/tflite.md tells: a newer LiteRT that moves this moves the page."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled


@pytest.mark.parametrize("op", ["Sin", "Cos"])
def test_errors_grow_with_the_angle(op: str):
    case = compiled(
        f"""<ir_version: 8, opset_import: ["" : 21]> g (float[512] x) => (float[512] y) {{ y = {op}(x) }}"""
    )
    angles = [np.random.default_rng(0).uniform(-1, 1, 512).astype(np.float32) * 10.0**power for power in range(10)]
    feeds = [{"x": each.astype(np.float32)} for each in angles]
    found = [result["y"].astype(np.float64) for _, result in case.both(feeds)]
    truth = [getattr(np, op.lower())(feed["x"].astype(np.float64)) for feed in feeds]
    errors = [float(np.abs(have - want).max()) for have, want in zip(found, truth, strict=True)]
    assert max(errors[:6]) < 4e-7
    assert errors[6] < 3e-6
    assert errors[7] < 3e-5
    assert errors[8] < 3e-4
    assert errors[9] > 1  # no clamp, no reduction: another number altogether
