"""The ONNX backend suite through the TFLite target: a fixed sample here, all of it nightly.

`make conformance` runs all and writes docs/measurements/conformance-onnx.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import board
import numpy as np
import pytest
import suite
from compare import compare

REFUSED: dict[str, str] = json.loads((suite.HERE / "refused.json").read_text())
"""Cases that are refused, with a part of the reason."""


def check(cases: Sequence[suite.Eligible]) -> Counter[str]:
    """Every case is right, or refused for the reason on record."""
    results = list(board.run(cases))
    mistakes = [f"{result.name}: {result.status}: {result.reason}" for result in results if not _is_expected(result)]
    assert not mistakes, "\n".join(mistakes)
    return Counter(result.status for result in results)


def _is_expected(result: board.Result) -> bool:
    if result.name in REFUSED:
        return result.status == "refused" and REFUSED[result.name] in result.reason
    return result.status == "right"


def test_sample():
    check(suite.sample(every=20))


def test_refusals_are_those_on_record():
    check([case for case in suite.eligible() if case.name in REFUSED])


@pytest.mark.nightly
def test_all():
    counts = check(suite.eligible())
    assert counts["right"] >= 0.98 * len(suite.eligible())


def test_eligible_cases_are_those_of_the_installed_package():
    names = [case.name for case in suite.eligible()]
    assert len(names) == len(set(names)) == 967
    assert set(REFUSED) <= set(names)
    assert len(REFUSED) <= 0.02 * len(names)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"y": np.float32([1, 2])}, ""),
        ({"y": np.float32([1, 2.00001])}, ""),
        ({"y": np.float32([1, 2.1])}, "max error"),
        ({"y": np.float64([1, 2])}, "float64"),
        ({"y": np.float32([[1, 2]])}, "shape"),
        ({"z": np.float32([1, 2])}, "names"),
        ({"y": np.float32([1, np.nan])}, "NaN"),
    ],
)
def test_what_counts_as_the_same(found: dict[str, np.ndarray], reason: str):
    verdict = compare(found, {"y": np.float32([1, 2])}, rtol=1e-3, atol=1e-7)
    assert reason in verdict.reason
    assert bool(verdict.reason) == bool(reason)


def test_infinities_and_integers_are_exact():
    same = {"y": np.float32([np.inf, np.nan])}
    assert not compare(same, same, 1e-3, 1e-7).reason
    assert compare({"y": np.int32([1])}, {"y": np.int32([2])}, 1.0, 9.0).reason
