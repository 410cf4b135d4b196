"""What the ExecuTorch target says of itself, and refuses, where ExecuTorch is not installed."""

from __future__ import annotations

import pytest

from convertkit import plugins
from convertkit.targets.executorch.profile import profile
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION = "fixtures/digits/model.pt", "fixtures/digits/calib.npz"


@pytest.mark.parametrize("flags", [(), ("--int8", "--calib", CALIBRATION)], ids=["float32", "int8"])
def test_one_sentence_says_what_to_install(monkeypatch, tmp_path, flags):
    monkeypatch.setattr("convertkit.targets.executorch.find_spec", lambda name: None)
    said = here("export", NETWORK, "--target", "executorch", *flags, "-o", tmp_path / "out")
    check_refusal(said, 4, "executorch", "convertkit-ml[executorch]")
    assert not (tmp_path / "out").exists()


def test_another_precision_is_refused_and_nothing_is_left(tmp_path):
    said = here("export", NETWORK, "--target", "executorch", "--w8", "-o", tmp_path / "out")
    check_refusal(said, 2, "w8", "executorch")
    assert not (tmp_path / "out").exists()


def test_its_profile_is_what_the_partitioner_takes():
    target = plugins.target("executorch")
    assert target.precisions == ("float32", "int8")
    found = profile(None)
    assert (found.activation, found.symmetric, found.bias) == ("int8", False, "float32")
