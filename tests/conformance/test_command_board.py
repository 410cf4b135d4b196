"""The page of the whole export goes on where a run before it has ended."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace

import command_board as board
import command_service as service
import compare
import numpy as np
import pytest
import suite

RIGHT = board.Outcome("test_abs", "Abs", "right", "openvino", "")


def test_a_known_outcome_is_not_run_again(tmp_path, monkeypatch):
    cases = tuple(case for case in suite.eligible() if case.op in ("Abs", "Det"))
    stored, page, ran = tmp_path / "board.jsonl", tmp_path / "page.md", []
    stored.write_text(json.dumps(asdict(RIGHT)) + "\n")

    def refused(left, targets):
        ran.extend(case.name for case in left)
        return (board.Outcome(case.name, case.op, "refused", "", "no rule | here") for case in left)

    monkeypatch.setattr(board, "run", refused)
    monkeypatch.setattr(suite, "eligible", lambda: cases)
    arguments = ["--target", "openvino", "--json", str(stored), "--resume", "--out", str(page)]
    monkeypatch.setattr(sys, "argv", ["command_board.py", *arguments])
    board.main()
    assert ran == [case.name for case in cases if case.op == "Det"]
    assert len(stored.read_text().splitlines()) == len(cases)
    text = page.read_text()
    assert f"**1 of {len(cases)} delivered and right" in text
    assert "0 wrong" in text
    assert "| test_det_2d | refused | no rule \\| here |" in text


def test_resuming_needs_the_file(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["command_board.py", "--resume"])
    with pytest.raises(SystemExit):
        board.main()
    assert "give --json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (np.array([1.0, -2.0, 3.05], np.float32), ""),
        (np.array([1.0, -2.0, 4.0], np.float32), "dB of the signal"),
        (np.array([1.0, -2.0], np.float32), "shape"),
        (np.array([1.0, -2.0, np.nan], np.float32), "NaN"),
    ],
)
def test_integers_keep_twenty_decibels(found, said):
    wanted = {"y": np.array([1.0, -2.0, 3.0], np.float32)}
    assert said in compare.keeps_signal({"y": found}, wanted).reason
    assert bool(compare.keeps_signal({"y": found}, wanted).reason) == bool(said)


def test_integers_are_asked_for_where_there_are_no_floats():
    page = board.page([board.Outcome("test_abs", "Abs", "right", "qnn", "")], ("qnn",))
    assert "in int8, calibrated on its own data" in page
    assert f"Of the suite's {len(suite.eligible())} cases 1 were run." in page


@pytest.mark.parametrize(("rounded", "said"), [(True, ""), (False, "1 of 3 differ")])
def test_integers_that_stand_for_rounded_numbers_keep_as_much(rounded, said):
    wanted, found = ({"y": np.array([50, -2, last], np.int8)} for last in (40, 41))
    assert compare.keeps_signal(found, wanted, rounded=rounded).reason == (f"y: {said}" if said else "")
    wide = {"y": found["y"].astype(np.int16)}
    assert "int16" in compare.keeps_signal(wide, wanted, rounded=rounded).reason


@pytest.mark.parametrize(
    ("reason", "quality", "status"),
    [
        ("", {}, "right"),
        ("y: 10.6 dB of the signal", {}, "wrong"),
        ("y: 10.6 dB of the signal", {"low_db": 12.0}, "told"),
        ("y: 10.6 dB of the signal", {"weak": True}, "told"),
        ("y: 10.6 dB of the signal", None, "wrong"),
        ("y: shape (2,), expected (3,)", {"weak": True}, "wrong"),
    ],
)
def test_what_the_report_itself_warns_of_is_told(reason, quality, status):
    figures = {"snr_db": 30.0, "median_db": 30.0, "low_db": 30.0, "weak": False}
    report = {"quality": None if quality is None else figures | quality}
    verdict = compare.Verdict(reason, 0.0, is_lossy="signal" in reason)
    assert service._status(verdict, SimpleNamespace(report=report)) == status
