"""What all tests share: the digits fixture, the real cases, and a line that says how many of those ran."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Digits:
    """Paths of the fixture that fixtures/digits/README.md describes."""

    model: Path
    calib: Path
    test: Path

    @property
    def images(self) -> np.ndarray:
        """All test images, float32 (360, 1, 8, 8)."""
        return np.load(self.test)["input"]

    @property
    def labels(self) -> np.ndarray:
        """Their labels, int64 (360,)."""
        return np.load(self.test)["label"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def digits() -> Digits:
    """The small CNN on real digits, with its data."""
    folder = ROOT / "fixtures" / "digits"
    return Digits(folder / "model.pt", folder / "calib.npz", folder / "test.npz")


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder with real models, from $CONVERTKIT_CASES; the test is skipped where it is not set."""
    folder = os.environ.get("CONVERTKIT_CASES")
    if not folder:
        pytest.skip("$CONVERTKIT_CASES is not set: no real models here")
    return Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests on real cases ran and how many were skipped."""
    ran = skipped = 0
    for outcome in ("passed", "failed", "error", "xfailed", "xpassed"):
        ran += sum(_is_case(report) for report in terminalreporter.getreports(outcome))
    skipped += sum(_is_case(report) for report in terminalreporter.getreports("skipped"))
    terminalreporter.write_line(f"case tests: {ran} ran, {skipped} skipped")


def _is_case(report: object) -> bool:
    keywords = getattr(report, "keywords", {})
    return "case" in keywords and getattr(report, "when", "") in ("call", "setup")
