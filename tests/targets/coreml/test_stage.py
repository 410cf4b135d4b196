"""The target through the command: every precision, what is delivered, and what the golden vectors hold."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

import convertkit
from convertkit.errors import FeedError
from convertkit.targets.coreml.package.program import read_package
from convertkit.targets.coreml.runner import RUNTIME, CoreMLRunner
from tests.targets.coreml.apple_packages import compile_text, numbers


@pytest.mark.parametrize(
    ("choice", "operation", "weights"),
    [
        ({}, "conv", "float32"),
        ({"fp16": True}, "conv", "float16"),
        ({"w8": True}, "constexpr_affine_dequantize", "int8"),
        ({"w4": True}, "constexpr_blockwise_shift_scale", "int4"),
    ],
    ids=["float32", "fp16", "w8", "w4"],
)
def test_digits_in_every_precision(choice, operation, weights, digits, tmp_path):
    result = convertkit.export(digits.model, target="coreml", output=tmp_path / "out", seed=3, **choice)
    assert result.report["steps"][-1]["artifact"]["runtime"] == RUNTIME
    program = read_package(tmp_path / "out" / "model.mlpackage")
    found = [each for each in program.block.operations if each.type == operation]
    assert found
    arrays = [each.attributes.get("val") for each in program.block.operations if each.type == "const"]
    arrays += [value for each in found for value in each.attributes.values()]
    arrays += [value for each in found for group in each.inputs.values() for value in group]
    kept = {each.dtype.name for each in arrays if isinstance(each, np.ndarray) and each.size > 500}
    assert weights in kept
    assert not kept - {weights, "float32", "float16"}


def test_int8_keeps_the_answers(digits, tmp_path):
    """Integers around convolutions; the delivered package, run again, answers as the model does."""
    result = convertkit.export(
        digits.model, target="coreml", output=tmp_path / "out", int8=True, calib=digits.calib, static={"N": 1}
    )
    operations = [each.type for each in read_package(tmp_path / "out" / "model.mlpackage").block.operations]
    assert operations.count("quantize") > 5
    assert operations.count("conv") > 3
    with CoreMLRunner(result.artifact) as runner:
        answers = [int(runner.run({"input": image[None]})["output"].argmax()) for image in digits.images[:60]]
    assert np.mean(np.array(answers) == digits.labels[:60]) >= 0.95
    golden = json.loads((tmp_path / "out" / "golden.json").read_text())
    assert len(golden["vectors"]) == 3
    told = golden["vectors"][0]["inputs"]["input"]
    first = np.frombuffer(base64.b64decode(told["data"]), "<f4").reshape(told["shape"])
    assert np.array_equal(first, np.load(digits.calib)["input"][:1])
    assert "XCTestCase" in (tmp_path / "out" / "GoldenTests.swift").read_text()


def test_inputs_that_the_package_does_not_take(digits, tmp_path):
    result = convertkit.export(digits.model, target="coreml", output=tmp_path / "out")
    with CoreMLRunner(result.artifact) as runner:
        with pytest.raises(FeedError, match="shape"):
            runner.run({"input": np.zeros((2, 1, 8, 8), np.float32)})
        with pytest.raises(FeedError, match="no array"):
            runner.run({})


def test_an_unrolled_layer_has_its_weights_once(worker, tmp_path):
    """A GRU becomes steps, each of which reads the same matrices."""
    weights = {"w": numbers(1, 24, 8), "r": numbers(1, 24, 8, seed=1), "b": numbers(1, 48, seed=2)}
    text = "test (float[5,2,8] x) => (float[5,1,2,8] y) { y, h = GRU<hidden_size=8>(x, w, r, b) }"
    made = compile_text(worker, text, tmp_path / "c", **weights)
    made.agree({"x": numbers(5, 2, 8)})
    consts = [each.attributes["val"] for each in made.program.block.operations if each.type == "const"]
    large = [(each.shape, each.tobytes()) for each in consts if each.size >= 64]
    assert len(large) == len(set(large)) == 3
