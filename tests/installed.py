"""Skip a test where a package is missing, without importing the package into the tests' own process."""

from __future__ import annotations

import importlib.util

import pytest


def needs(package: str) -> None:
    """Unlike ``pytest.importorskip``: TensorFlow in this process would hide that the product imported it."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
