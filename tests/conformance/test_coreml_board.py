"""The ONNX backend suite through the Core ML target: a few cases here, all of it nightly.

`make conformance-coreml` runs all and writes docs/measurements/conformance-coreml.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import board
import pytest
import suite

pytestmark = pytest.mark.skipif(find_spec("coremltools") is None, reason="coremltools is not installed")
"""Found and not imported: it imports Keras, on whatever backend, into the process of other tests."""

_EVERY = 48
_REFUSED = {"test_gridsample_bicubic"}
"""Of the sample; an operator that gets a handler leaves this list."""


def check(cases: Sequence[suite.Eligible]) -> list[board.Result]:
    """Every case is right, or refused in a sentence that names an input, an output or a node."""
    results = list(board.run(cases, "coreml"))
    assert len(results) == len(cases)
    mistakes = [f"{each.name}: {each.status}: {each.reason}" for each in results if not _is_expected(each)]
    assert not mistakes, "\n".join(mistakes)
    return results


def _is_expected(result: board.Result) -> bool:
    return result.status == "right" or (result.status == "refused" and "a handler's mistake" not in result.reason)


def _held_and_right(results: Sequence[board.Result]) -> float:
    """The share that is right of the cases that Core ML can hold."""
    held = [each for each in results if not each.barrier]
    return sum(each.status == "right" for each in held) / len(held)


def test_each_nth_case_is_right_or_refused():
    results = check(suite.eligible()[::_EVERY])
    assert {each.name for each in results if each.status == "refused"} == _REFUSED


@pytest.mark.nightly
def test_every_case_is_right_or_refused():
    assert _held_and_right(check(suite.eligible())) > 0.95


def test_what_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One case before the time is over; then the others alone, and the page only when all are there."""
    told, page = tmp_path / "told.jsonl", tmp_path / "page.md"
    asked: list[str] = []

    def run(cases: Sequence[suite.Eligible], target: str) -> Iterator[board.Result]:
        assert target == "coreml"
        for case in cases:
            asked.append(case.name)
            yield board.Result(case.name, case.op, "right", "", barrier="")

    monkeypatch.setattr(board, "run", run)
    command = ["board.py", "--target", "coreml", "--op", "Sin", "--json", str(told), "--resume", "--out", str(page)]
    monkeypatch.setattr(sys, "argv", [*command, "--limit-s", "-1"])
    with pytest.raises(SystemExit, match="1 cases are left: --resume runs them"):
        board.main()
    assert len(told.read_text().splitlines()) == len(asked) == 1
    assert not page.exists()
    monkeypatch.setattr(sys, "argv", command)
    board.main()
    assert sorted(asked) == sorted(case.name for case in suite.eligible() if case.op == "Sin")
    assert len(told.read_text().splitlines()) == 2
    assert page.read_text().startswith("# ONNX operator conformance of the Core ML target")


def test_a_page_counts_what_the_format_cannot_hold_apart():
    results = [
        board.Result("a", "Add", "right", ""),
        board.Result("b", "Add", "refused", "it is so", barrier="element type double"),
        board.Result("c", "Add", "refused", "no such operator"),
    ]
    page = board.page(results, "coreml")
    assert "cannot hold 1 of the refused cases. Of the 2 others **1 are right (50.0 %)**" in page
    assert "| element type double | 1 |" in page
    assert "cannot hold" not in board.page([results[0], results[2]])
