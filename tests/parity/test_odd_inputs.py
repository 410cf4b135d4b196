"""Inputs on which the source itself gives NaN or fails are named, and generated masks keep at least one key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.errors import NotProven, SourceError, ToolError
from convertkit.parity.feeds import proof_feeds
from tests.onnx_models import model, write


def logarithm(folder: Path) -> Path:
    """``y = log(x)``, NaN below zero."""
    return write(folder, model([helper.make_node("Log", ["x"], ["y"])], {"x": ["N", 6]}, {"y": ["N", 6]}))


def test_the_sample_on_which_the_source_gives_nan_is_named(tmp_path: Path):
    samples = np.random.default_rng(0).uniform(1, 9, (5, 6)).astype(np.float32)
    samples[2] = -1
    np.save(tmp_path / "calib.npy", samples)
    made = convertkit.export(logarithm(tmp_path), calib=tmp_path / "calib.npy", output=tmp_path / "out")
    (note,) = [note for note in made.notes if "NaN" in note]
    # The sixth input is a batch of the first three samples.
    assert note == 'the source itself gives NaN on inputs 3, 6, "negative" and "lowest"'


def test_samples_that_are_all_outside_the_domain_are_named(tmp_path: Path):
    np.save(tmp_path / "calib.npy", np.float32([[-1, -2, -3, -4, -5, 2], [-2, -3, -5, -7, -1, 3]]))
    with pytest.raises(NotProven, match=r'output "y" is not finite on every input'):
        convertkit.export(logarithm(tmp_path), calib=tmp_path / "calib.npy", output=tmp_path / "out")


def test_the_sample_on_which_the_source_fails_is_named(tmp_path: Path):
    """An index that the table does not have, in the second sample."""
    made = model(
        [helper.make_node("Gather", ["w", "ids"], ["y"])],
        {},
        {"y": ["N", 3]},
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 3], np.arange(12.0))],
    )
    made.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"]))
    np.savez(tmp_path / "calib.npz", ids=np.array([1, 9, 2]))
    with pytest.raises((SourceError, ToolError), match=r"on input 2 of 4: .*out of data bounds"):
        convertkit.export(write(tmp_path, made), calib=tmp_path / "calib.npz", output=tmp_path / "out")


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("mask", ("N", 3), "bool"),
        TensorSpec("mask", ("N", 3), "int64", value_range=(0, 2)),
        TensorSpec("mask", (2, 1, 1, 3), "int32", value_range=(0, 2)),
    ],
)
def test_generated_masks_keep_at_least_one_key(spec: TensorSpec):
    for seed in range(20):
        for feed in proof_feeds((spec,), None, seed):
            assert feed["mask"].any(-1).all(), seed


def test_flags_of_one_element_vary():
    spec = TensorSpec("flag", ("N", 1), "bool")
    assert {bool(feed["flag"][0, 0]) for feed in proof_feeds((spec,), None, 0)} == {False, True}
