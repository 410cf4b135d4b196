"""What the tests of ``--device this`` share: a model whose integers pay, its export, and a machine that is made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import convertkit
from tests import onnx_models

SHAPE = (1, 32, 28, 28)


def three_convolutions(folder: Path) -> Path:
    """A model of them, large enough for integers to pay."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(0, 0.06, (32, 32, 3, 3)).astype(np.float32), f"w{i}") for i in "012"]
    nodes = [
        helper.make_node("Conv", [before, f"w{i}"], [after], f"conv{i}", pads=[1] * 4)
        for i, (before, after) in enumerate((("x", "a"), ("a", "b"), ("b", "y")))
    ]
    return onnx_models.write(folder, onnx_models.model(nodes, {"x": SHAPE}, {"y": SHAPE}, weights))


def samples() -> dict[str, Any]:
    """To calibrate that model with."""
    return {"x": np.random.default_rng(0).normal(0, 1, (16, *SHAPE[1:])).astype(np.float32)}


def exported(source: Path, target: str, place: Path, **how: Any) -> convertkit.Result:
    """In integers where they pay."""
    return convertkit.export(source, target, int8=True, calib=samples(), output=place, **how)


def noted(monkeypatch: pytest.MonkeyPatch, target: type, tables: Mapping[str, Any]) -> list[str]:
    """The name of ``target`` for each time that it measures, which gives ``tables``."""
    found: list[str] = []

    def measure(own: Any) -> str:
        found.append(own.name)
        return json.dumps(tables)

    monkeypatch.setattr(target, "measure_here", measure)
    return found
