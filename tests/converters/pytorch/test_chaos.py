"""A road is judged on feeds that drive its model into chaos, too: by what one rounding at the input does there."""

from __future__ import annotations

import numpy as np
import pytest

import convertkit
from convertkit.converters.pytorch.interface.chaos import beyond_chaos, by_roundings
from convertkit.errors import ParityError
from convertkit.stage import FLOAT32

WANTED = {"y": np.linspace(1, 2, 6, dtype=np.float32), "chosen": np.arange(3)}
STEADY = {"z": np.linspace(3, 4, 5, dtype=np.float32)}


def moved(outputs, by):
    return {name: value + np.float32(by) if value.dtype.kind == "f" else value for name, value in outputs.items()}


def test_a_trace_that_missed_a_chaotic_branch_is_refused(tmp_path):
    with pytest.raises(ParityError, match="last place of the inputs moves it by"):
        convertkit.export("odd_models:ChaoticBranch", "onnxruntime", output=tmp_path / "out")


def test_a_model_that_is_chaotic_on_every_feed_is_not_accepted(tmp_path):
    with pytest.raises(ParityError, match="no road from this model to ONNX computes what the model computes"):
        convertkit.export("odd_models:Chaotic", "onnxruntime", output=tmp_path / "out")


@pytest.mark.parametrize("times", [0.5, -3, 40])
def test_multiples_of_the_model_s_own_move_are_roundings(times):
    assert beyond_chaos(WANTED, moved(WANTED, 1e-3), moved(WANTED, times * 1e-3), FLOAT32) == ""


@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf])
def test_a_wrong_road_is_wrong_in_chaos_too(wrong):
    """Most feeds chaotic, the steady ones equal: the road that takes the other branch there is not accepted."""
    assert beyond_chaos(WANTED, moved(WANTED, 1e-3), moved(WANTED, wrong), FLOAT32).startswith("y ")


def test_an_output_that_stays_steady_is_held_to_the_tolerance():
    both, chaotic = WANTED | STEADY, moved(WANTED, 0.1) | STEADY
    assert beyond_chaos(both, chaotic, moved(WANTED, 0.2) | moved(STEADY, 1e-6), FLOAT32) == ""
    assert beyond_chaos(both, chaotic, WANTED | moved(STEADY, 1e-3), FLOAT32).startswith("z ")


@pytest.mark.parametrize(("times", "explained"), [(0.01, False), (40, True), (400, False)])
def test_what_roundings_explain(times, explained):
    """Within the tolerance there is nothing to explain; beyond some dozens of roundings it is a fault."""
    nudged, got = moved(WANTED, 1e-4), moved(WANTED, times * 1e-4)
    assert by_roundings(WANTED, nudged, got, FLOAT32) is explained
    assert not by_roundings(WANTED, nudged, got | {"chosen": np.arange(3) + 1}, FLOAT32)
