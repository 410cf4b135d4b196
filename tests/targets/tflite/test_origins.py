"""The note of where results come from says the same in fewer bytes."""

from __future__ import annotations

import json

from convertkit.targets.tflite.origins import folded, unfolded

GRAPHS = [
    ["conv 1 (/path/to/net.py:12, in forward)", "", "relu (/path/to/net.py:12, in forward)"],
    [],
    ["plain", "two words (/path/to/net.py:3, in head)", "odd (name", "cat (elsewhere.py:1)", " (bare)"],
]


def test_it_reads_what_was_written() -> None:
    assert unfolded(json.loads(json.dumps(folded(GRAPHS)))) == GRAPHS


def test_places_are_told_once_and_without_what_they_share() -> None:
    note = folded(GRAPHS)
    assert note["places"] == [
        [0, "/path/to/net.py:12, in forward"],
        [16, "3, in head"],
        [0, "elsewhere.py:1"],
        [0, "bare"],
    ]
    assert note["origins"][0] == ["conv 1 0", "", "relu 0"]
