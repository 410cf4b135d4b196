"""Pre- and post-processing as part of the model: from a JPEG to the answer, against Pillow and the plain model."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper
from PIL import Image
from sklearn.datasets import load_sample_images

import convertkit
from convertkit import plugins
from convertkit.compare import verify
from convertkit.compare.bisection import bisect
from convertkit.errors import FeedError, UsageError
from convertkit.options.flags import options_from
from convertkit.processing.reference import bilinear, factor, preprocessed
from convertkit.processing.words import Postprocess, Preprocess, parse_postprocess, parse_preprocess
from tests import onnx_models

STEPS = "image:16,crop:0.5,mean:0,std:255"
ROUNDING = 2.0**-24
"""Of float32, relative to the number that is rounded."""


def as_jpeg(picture: np.ndarray) -> np.ndarray:
    """``picture`` of bytes, grey (height, width) or coloured, as a JPEG of the best quality holds it: (1, H, W, C)."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=95, subsampling=0)
    decoded = np.asarray(Image.open(stream))
    return decoded.reshape(1, *picture.shape[:2], -1)


def photograph(height: int, width: int) -> np.ndarray:
    """A part of a real photograph, decoded from its JPEG: (1, height, width, 3)."""
    return load_sample_images().images[0][100 : 100 + height, 200 : 200 + width][None]


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_from_a_jpeg_to_the_answer(target, digits, tmp_path):
    """Scans of digits lie in the centre of a JPEG; the delivered file says what the plain model says of the centre."""
    made = convertkit.export(
        digits.model, target, preprocess=STEPS, postprocess="softmax,top:3", output=tmp_path / "out"
    )
    assert made.passed
    plain = torch.jit.load(str(digits.model))
    right = 0
    for image, label in zip(digits.images[:20], digits.labels, strict=False):
        sheet = np.full((16, 16), 40, np.uint8)
        sheet[4:12, 4:12] = np.rint(image[0] * 255)
        pixels = as_jpeg(sheet)
        centre = torch.from_numpy((pixels[:, 4:12, 4:12, 0] / 255).astype(np.float32))[:, None]
        with torch.no_grad():
            scores, classes = (each.numpy() for each in plain(centre).softmax(1).topk(3))
        found = answers(target, made.artifact, pixels)
        np.testing.assert_allclose(found["scores"], scores, rtol=1e-4, atol=1e-6)
        assert found["classes"][0, 0] == classes[0, 0]
        right += found["classes"][0, 0] == label
    assert right >= 19, "the model itself knows 99 % of the digits"


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


def negation(folder: Path, shape: list[int | str]) -> Path:
    """``y = -x``, so that the answer is the picture itself."""
    node = helper.make_node("Neg", ["x"], ["y"])
    return onnx_models.write(folder, onnx_models.model([node], {"x": shape}, {"y": shape}))


@pytest.mark.parametrize("target", ["onnxruntime", "tflite", "openvino"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_models_pixels_are_the_pictures(target, layout, tmp_path):
    """Without a resize: cut, turned around and normalised, in float32 to its rounding."""
    shape = ["N", 3, 14, 18] if layout == "nchw" else ["N", 14, 18, 3]
    steps = "image:20x26,crop:0.7,bgr,mean:123.675,116.28,103.53,std:58.395,57.12,57.375"
    made = convertkit.export(negation(tmp_path, shape), target, preprocess=steps, output=tmp_path / "out")
    pixels = photograph(20, 26)
    centre = pixels[:, 3:17, 4:22, ::-1].astype(np.float64)
    wanted = (centre - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]
    wanted = wanted.transpose(0, 3, 1, 2) if layout == "nchw" else wanted
    # mean and 1 / std are rounded, then the difference and the product: four roundings of numbers of up to 255
    np.testing.assert_allclose(-made.run({"x": pixels})["y"], wanted, rtol=0, atol=4 * 255 * ROUNDING / 57)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite", "coreml"])
@pytest.mark.parametrize("size", [(40, 33), (11, 17)])
def test_a_resized_picture_is_the_references(target, size, tmp_path):
    steps = "image:24x30,mean:0,std:1"
    made = convertkit.export(negation(tmp_path, [1, 3, *size]), target, preprocess=steps, output=tmp_path / "out")
    pixels = photograph(24, 30)
    wanted = preprocessed(pixels, parse_preprocess(steps), size, channels_first=True)
    # A factor of float32 is off by up to two roundings, and a place is three more: neighbours differ by up to 255. Then
    # each axis has a weight, its complement, two products and their sum; Core ML's package holds weights in a matrix.
    bound = 255 * ROUNDING * (5 * (24 + 30) + 2 * 5)
    np.testing.assert_allclose(-made.run({"x": pixels.astype(np.uint8)})["y"], wanted, rtol=0, atol=bound)


def test_the_models_twin_has_the_processing_too(tmp_path):
    """Kernels place pixels in float32, which is beyond the tolerance here: the twin of what was made decides."""
    path = negation(tmp_path, [1, 3, 224, 224])
    made = convertkit.export(path, preprocess="image:256,mean:0,std:1", output=tmp_path / "out")
    assert made.passed
    (explained, *_) = made.report["steps"][0]["parity"]["versus_source"]["explained"]
    assert "float64 tells" in str(explained)


def test_an_export_is_compared_with_its_plain_source(tmp_path):
    """The manifest tells the steps, whichever of the two comes first; another source is found out."""
    path = negation(tmp_path, ["N", 3, 14, 18])
    steps = {"preprocess": "image:20x26,crop:0.7,bgr,mean:100,std:58", "postprocess": "top:2"}
    made = convertkit.export(path, "tflite", output=tmp_path / "out", **steps)
    assert verify(path, tmp_path / "out").passed
    assert verify(made.artifact.path, path).passed
    assert not bisect(path, tmp_path / "out").findings
    (tmp_path / "other").mkdir()
    same = helper.make_node("Identity", ["x"], ["y"])
    ends = {"x": ["N", 3, 14, 18]}, {"y": ["N", 3, 14, 18]}
    other = onnx_models.write(tmp_path / "other", onnx_models.model([same], *ends))
    assert not verify(other, tmp_path / "out").passed


@pytest.mark.parametrize(("old", "new"), [((5, 6), (8, 8)), ((7, 3), (21, 20))])
def test_a_picture_that_grows_is_pillows(old, new):
    pixels = np.random.default_rng(1).integers(0, 256, old).astype(np.float32)
    expected = np.asarray(Image.fromarray(pixels).resize(new[::-1], Image.Resampling.BILINEAR))
    found = bilinear(pixels[None, :, :, None].astype(np.float64), new)[0, :, :, 0]
    # Pillow's factor is of float64, and moves places by 2 roundings of the size; Pillow rounds behind each axis
    np.testing.assert_allclose(found, expected, rtol=0, atol=255 * ROUNDING * (2 * sum(old) + 2))


def test_a_picture_that_shrinks_is_torchs():
    pixels = np.random.default_rng(1).integers(0, 256, (1, 13, 11, 3)).astype(np.float64)
    expected = torch.nn.functional.interpolate(torch.from_numpy(pixels).permute(0, 3, 1, 2), (5, 7), mode="bilinear")
    # torch's factor is of float64, and moves places by 2 roundings of the size; neighbours differ by up to 255
    bound = 255 * ROUNDING * 2 * (13 + 11)
    np.testing.assert_allclose(bilinear(pixels, (5, 7)), expected.permute(0, 2, 3, 1).numpy(), rtol=0, atol=bound)


@pytest.mark.parametrize("sizes", [(224, 256), (299, 321), (7, 9), (100, 333), (640, 426)])
def test_the_factor_gives_the_size_whatever_computes_it(sizes):
    new, old = sizes
    found = factor(old, new)
    assert np.floor(found * np.float32(old)) == np.floor(float(found) * old) == new
    assert abs(float(found) * old / new - 1) <= 2 * ROUNDING


def test_integers_behind_a_resize(digits, tmp_path):
    """The quantizer sees the normalised picture, and the runtime's own kernel resizes it."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (40, 10, 12, 1), np.uint8)
    np.savez(tmp_path / "calib.npz", input=pictures)
    how = {"preprocess": "image:10x12,crop:0.5,mean:20,std:240", "calib": tmp_path / "calib.npz"}
    made = convertkit.export(digits.model, "tflite", int8=True, output=tmp_path / "out", **how)
    assert made.passed
    kernels = [each.kind for each in plugins.target("tflite").operators(made.artifact)]
    assert "RESIZE_BILINEAR" in kernels
    assert "CONV_2D" in kernels


@pytest.mark.parametrize("steps", ["mean:0,std:255", "mean:0.25,std:255"])
def test_bytes_are_the_integers_of_a_model_without_floats(steps, digits, tmp_path):
    """The app gives pixels, and the file has no floats; a mean between two bytes takes a convolution."""
    pixels = np.rint(digits.images.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    np.savez(tmp_path / "calib.npz", input=pixels[::4])
    how = {"preprocess": f"image:8,{steps}", "int8": True, "full_integer": True, "io_dtype": "int8"}
    made = convertkit.export(digits.model, "tflite", calib=tmp_path / "calib.npz", output=tmp_path / "out", **how)
    kernels = [each.kind for each in plugins.target("tflite").operators(made.artifact)]
    assert kernels.count("CONV_2D") == 6 + (steps != "mean:0,std:255")
    assert kernels[0] == "QUANTIZE"
    assert "DEQUANTIZE" not in kernels
    (port,) = made.interface.inputs
    assert port.dtype == "uint8"
    found = [made.run({"input": image[None]})["output"].argmax() for image in pixels[1:100]]
    assert np.mean(found == digits.labels[1:100]) >= 0.98


@pytest.mark.parametrize("integers", [{}, {"int8": True, "full_integer": True}])
def test_a_microcontroller_takes_pixels(integers, digits, tmp_path):
    pytest.importorskip("tflite_micro")
    pixels = np.rint(digits.images.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    np.savez(tmp_path / "calib.npz", input=pixels[::4])
    how = {"preprocess": "image:8,mean:0,std:255", "calib": tmp_path / "calib.npz", **integers}
    made = convertkit.export(digits.model, "tflite-micro", output=tmp_path / "out", **how)
    assert "kInput0Bytes = 64;" in (tmp_path / "out" / "model.h").read_text()
    (first, *_) = plugins.target("tflite-micro").operators(made.artifact)
    assert first.kind == ("QUANTIZE" if integers else "DEQUANTIZE")
    found = [made.run({"input": image[None]})["output"].argmax() for image in pixels[1:60]]
    assert np.mean(found == digits.labels[1:60]) >= 0.98


@pytest.mark.parametrize("steps", ["argmax", "softmax,top:3"])
def test_integers_in_front_of_a_choice_are_judged_by_the_scores(steps, digits, tmp_path):
    """As without the choice: the quality is that of the scores, and how often both models prefer the same class."""
    how = {"int8": True, "calib": digits.calib}
    found = [
        convertkit.export(digits.model, "onnxruntime", output=tmp_path / str(place), **how, **given).report
        for place, given in enumerate(({"postprocess": steps}, {}))
    ]
    chosen, plain = (
        next(step["diagnosis"]["held_out"] for step in report["steps"] if step["stage"] == "quantize")
        for report in found
    )
    assert chosen == plain
    assert chosen["agreement"] > 0.9


def test_open_sizes_become_those_of_the_pictures_centre(tmp_path):
    path = negation(tmp_path, ["N", 3, "height", "width"])
    made = convertkit.export(path, preprocess="image:20x30,crop:0.5,mean:0,std:255", output=tmp_path / "out")
    pixels = photograph(20, 30)
    found = -made.run({"x": pixels})["y"]
    assert found.shape == (1, 3, 10, 15)
    np.testing.assert_allclose(found, pixels[:, 5:15, 7:22].transpose(0, 3, 1, 2) / 255, rtol=2 * ROUNDING)


def test_words():
    found = parse_preprocess("std:58,57,57,image:256x200,bgr,mean:124,116,104,crop:0.875,nhwc,input:x:0")
    assert found == Preprocess(256, 200, (124, 116, 104), (58, 57, 57), 0.875, True, "nhwc", "x:0")
    assert found.cut == (16, 12, 224, 175)
    assert parse_postprocess("top:5,softmax") == Postprocess(True, "top", 5)
    assert parse_postprocess("argmax,labels") == Postprocess(choice="argmax", labels=True)
    assert parse_postprocess("nms:3,iou:0.5,score:0.1,xyxy,labels").labels


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
        ({"postprocess": "names"}, "names is not a step"),
        ({"postprocess": "labels:3"}, "labels:3 is not a step"),
        ({"postprocess": "labels", "label_file": "l"}, "names no step"),
        ({"postprocess": "softmax,labels"}, "names of classes: give them by --label-file PATH"),
        ({"postprocess": "nms:3,iou:0.5,score:0.1,xyxy,labels"}, "names of classes: give them by --label-file PATH"),
        ({"postprocess": "argmax,labels,labels"}, "labels is given twice"),
        ({"postprocess": "argmax,top:3"}, "exclude each other"),
        ({"postprocess": "output:x"}, "names no step"),
        ({"preprocess": "audio:8000", "int8": True, "calib": "c", "full_integer": True}, "allows none"),
        ({"preprocess": STEPS, "int16x8": True, "calib": "c", "full_integer": True}, "--int16x8 --full-integer has 16"),
        ({"postprocess": "top:3", "int8": True, "calib": "c", "io_dtype": "int8"}, "leave one of them out"),
    ],
)
def test_bad_words_are_refused_at_the_start(given, sentence):
    with pytest.raises(UsageError, match=sentence):
        options_from({"source": "m.onnx", **given})


def test_what_microcontrollers_lack_is_refused_before_any_work(digits, tmp_path):
    for given, sentence in (({"postprocess": "argmax"}, "ARG_MAX no int64"),):
        with pytest.raises(UsageError, match=sentence):
            convertkit.export(digits.model, "tflite-micro", output=tmp_path / "out", **given)
    assert not list(tmp_path.iterdir())


def test_data_of_another_kind_is_refused_with_the_kind_that_is_wanted(digits, tmp_path):
    with pytest.raises(FeedError, match="pictures as bytes"):
        convertkit.export(
            digits.model, "tflite", int8=True, calib=digits.calib, preprocess=STEPS, output=tmp_path / "out"
        )
    assert not list(tmp_path.iterdir())


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
