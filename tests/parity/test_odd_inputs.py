"""Inputs on which the source itself gives NaN or fails are named, and generated masks keep at least one key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.errors import NotProven, SourceError, ToolError
from convertkit.parity.edge_inputs import NOTHING_KEPT
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
    """But for those of every third feed, which fall as they may."""
    free = set()
    for seed in range(20):
        for kind, feed in enumerate(proof_feeds((spec,), None, seed)):
            kept = feed["mask"].any(-1).all()
            assert kept or kind % 3 == 2, seed
            free.add(bool(kept))
    assert free == {False, True}


def masked(folder: Path, *, guarded: bool) -> Path:
    """A softmax over scores with -inf where ``mask`` is false; a ``guarded`` one gives 7 where it hides everything."""
    nodes = [
        helper.make_node("Where", ["mask", "x", "low"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("Cast", ["mask"], ["flags"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["flags"], ["most"], axes=[-1], keepdims=1),
        helper.make_node("Cast", ["most"], ["any"], to=TensorProto.BOOL),
        helper.make_node("Where", ["any", "weights", "seven"] if guarded else ["any", "weights", "weights"], ["y"]),
    ]
    given = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (("low", -np.inf), ("seven", 7))
    ]
    made = model(nodes, {"x": [4, 6]}, {"y": [4, 6]}, given, opset=17)
    made.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, [4, 6]))
    return write(folder, made)


def test_a_guard_against_empty_masks_is_seen(tmp_path: Path):
    """Without an input on which nothing is kept, a file that lost the guard would be verified."""
    made = convertkit.export(masked(tmp_path, guarded=True), "onnxruntime", output=tmp_path / "out")
    assert NOTHING_KEPT in made.report["steps"][-1]["parity"]["versus_source"]["edges"]
    assert (made.run({"x": np.zeros((4, 6), np.float32), "mask": np.zeros((4, 6), bool)})["y"] == 7).all()


def test_a_model_that_makes_nan_of_empty_masks_is_asked_for_none(tmp_path: Path):
    made = convertkit.export(masked(tmp_path, guarded=False), "onnxruntime", output=tmp_path / "out")
    assert NOTHING_KEPT not in made.report["steps"][-1]["parity"]["versus_source"]["edges"]
    assert not [note for note in made.notes if "NaN" in note]


def test_flags_that_are_reduced_vary(tmp_path: Path):
    axes = [helper.make_tensor("axes", TensorProto.INT64, [1], [1])]
    made = model([helper.make_node("ReduceMax", ["m", "axes"], ["y"])], {}, {}, axes, opset=20)
    made.graph.input.append(helper.make_tensor_value_info("m", TensorProto.BOOL, [4, 2]))
    made.graph.output.append(helper.make_tensor_value_info("y", TensorProto.BOOL, [4, 1]))
    assert convertkit.export(write(tmp_path, made), "onnxruntime", output=tmp_path / "out").passed
