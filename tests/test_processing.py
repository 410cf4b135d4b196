"""Pre- and post-processing as part of the model: from a JPEG to the answer, against Pillow and the plain model."""

from __future__ import annotations

import io

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import convertkit
from convertkit.errors import UsageError
from convertkit.options.flags import options_from
from convertkit.processing.reference import bilinear
from convertkit.processing.words import Postprocess, Preprocess, parse_postprocess, parse_preprocess
from tests import onnx_models

STEPS = "image:10x12,crop:0.5,mean:20,std:240"


def jpeg_pixels() -> np.ndarray:
    """A decoded JPEG of 10 x 12 grey pixels, (1, 10, 12, 1)."""
    rng = np.random.default_rng(3)
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (10, 12), dtype=np.uint8)).save(stream, "JPEG", quality=95)
    return np.asarray(Image.open(stream))[None, :, :, None]


def by_pillow(pixels: np.ndarray) -> np.ndarray:
    """What the digits' model takes: the centre of 5 x 6, enlarged to 8 x 8, normalised."""
    centre = Image.fromarray(pixels[0, 2:7, 3:9, 0].astype(np.float32))
    assert centre.size == (6, 5)
    return ((np.asarray(centre.resize((8, 8), Image.Resampling.BILINEAR)) - 20) / 240)[None, None]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_from_a_jpeg_to_the_answer(target, digits, tmp_path):
    made = convertkit.export(
        digits.model, target, preprocess=STEPS, postprocess="softmax,top:3", output=tmp_path / "out"
    )
    assert made.passed
    pixels = jpeg_pixels()
    with torch.no_grad():
        plain = torch.jit.load(str(digits.model))(torch.from_numpy(by_pillow(pixels)))
    scores, classes = (each.numpy() for each in plain.softmax(1).topk(3))
    found = answers(target, made.artifact, pixels)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found["classes"], classes)


def answers(target, artifact, pixels):
    """Of the delivered file, run by its runtime alone."""
    if target == "onnxruntime":
        session = onnxruntime.InferenceSession(artifact.path)
        results = session.run(None, {session.get_inputs()[0].name: pixels})
    else:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(artifact.path))
        (port,) = interpreter.get_input_details()
        interpreter.resize_tensor_input(port["index"], pixels.shape)
        interpreter.allocate_tensors()
        assert port["dtype"] == np.uint8
        interpreter.set_tensor(port["index"], pixels)
        interpreter.invoke()
        results = [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
    return {"classes" if each.dtype.kind == "i" else "scores": each for each in results}


@pytest.mark.parametrize(("old", "new"), [((5, 6), (8, 8)), ((7, 3), (21, 20))])
def test_a_picture_that_grows_is_pillows(old, new):
    pixels = np.random.default_rng(1).integers(0, 256, old).astype(np.float32)
    expected = np.asarray(Image.fromarray(pixels).resize(new[::-1], Image.Resampling.BILINEAR))
    np.testing.assert_allclose(bilinear(pixels[None, :, :, None], new)[0, :, :, 0], expected, atol=1e-4)


def test_a_picture_that_shrinks_is_torchs():
    pixels = np.random.default_rng(1).integers(0, 256, (1, 13, 11, 3)).astype(np.float32)
    expected = torch.nn.functional.interpolate(torch.from_numpy(pixels).permute(0, 3, 1, 2), (5, 7), mode="bilinear")
    rounding = 255 * 13 * 2.0**-23  # torch rounds places of up to 13 pixels to float32, and neighbours differ by 255
    np.testing.assert_allclose(bilinear(pixels, (5, 7)), expected.permute(0, 2, 3, 1).numpy(), atol=rounding)


def test_words():
    found = parse_preprocess("std:58,57,57,image:256x200,bgr,mean:124,116,104,crop:0.875,nhwc,input:x:0")
    assert found == Preprocess(256, 200, (124, 116, 104), (58, 57, 57), 0.875, True, "nhwc", "x:0")
    assert found.cut == (16, 12, 224, 175)
    assert parse_postprocess("top:5,softmax") == Postprocess(True, "top", 5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"preprocess": "image:8,mean:0,std:1,blur:3"}, "blur:3 is not a step"),
        ({"preprocess": "image:0,mean:0,std:1"}, "image:0 is not a step"),
        ({"preprocess": "image:8,mean:0"}, "std is missing"),
        ({"preprocess": "image:8,mean:1,2,std:0"}, "deviations positive"),
        ({"preprocess": "image:8,mean:0.485,std:0.229"}, "write mean:123.675,std:58.395"),
        ({"preprocess": "image:8,image:9,mean:0,std:1"}, "image is given twice"),
        ({"preprocess": "image:8,mean:0,std:1", "normalization": "x:0/1"}, "leave --normalization out"),
        ({"postprocess": "labels"}, "labels is not a step"),
        ({"postprocess": "argmax,top:3"}, "exclude each other"),
        ({"postprocess": "output:x"}, "names no step"),
    ],
)
def test_bad_words_are_refused_at_the_start(given, sentence):
    with pytest.raises(UsageError, match=sentence):
        options_from({"source": "m.onnx", **given})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"preprocess": "image:8,mean:0,std:1"}, "which input is meant"),
        ({"preprocess": "image:8,mean:0,std:1,input:none"}, "no such input"),
        ({"postprocess": "top:1000"}, "too few for top:1000"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(given, sentence, tmp_path):
    model = onnx_models.write(tmp_path, onnx_models.mlp(1))
    with pytest.raises(UsageError, match=sentence):
        convertkit.export(model, "onnxruntime", output=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()
