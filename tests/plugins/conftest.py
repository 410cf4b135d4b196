"""What tests of the package for Rockchip's NPUs share."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "examples" / "convertkit-rknn"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch):
    """Imports a module of the package."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    return lambda name: importlib.import_module(f"convertkit_rknn.{name}")
