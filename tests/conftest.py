"""What all tests share: the digits fixture, the real cases, and a line that says how many of those ran."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import slow_tests

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
def answers(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluation data whose labels are what the source answers, but for a thousandth: no integers keep its mse."""
    import convertkit

    place = tmp_path_factory.mktemp("answers")
    said = convertkit.export(digits.model, output=place / "out").run({"input": digits.images})["output"]
    np.savez(place / "answers.npz", input=digits.images, label=said + 0.001)
    return place / "answers.npz"


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which somebody else's plugin is installed, as its users would install it."""
    place = tmp_path_factory.mktemp("acme")
    tree, installed = place / "tree", place / "installed"
    shutil.copytree(ROOT / "tests" / "plugins" / "acme", tree, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-build-isolation"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", installed, tree], check=True)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder with real models, from $CONVERTKIT_CASES; the test is skipped where it is not set."""
    folder = os.environ.get("CONVERTKIT_CASES")
    if not folder:
        pytest.skip("$CONVERTKIT_CASES is not set: no real models here")
    return Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what tests/slow.txt lists, and what tests/grids.txt leaves to the nightly run."""
    slow = slow_tests.listed()
    daily = [item.nodeid for item in items if item.get_closest_marker("nightly") is None]
    nightly = slow_tests.left_to_nightly(daily, slow_tests.shares())
    for item in items:
        if slow_tests.is_slow(item.nodeid, slow):
            item.add_marker(pytest.mark.slow)
        if item.nodeid in nightly:
            item.add_marker(pytest.mark.nightly)


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
