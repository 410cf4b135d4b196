"""Models that others have trained, from picture files to their answers, with the preparation inside of the model."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import convertkit


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_digits_from_png_files(target, cases: Path, tmp_path: Path) -> None:
    """The class of the delivered file is the plain model's for each file, and right for 98 of 100."""
    source = cases / "mnist" / "cnn_mnist_pytorch.onnx"
    made = convertkit.export(
        source, target, preprocess="image:28,mean:0,std:1", postprocess="argmax", output=tmp_path / "out"
    )
    plain = onnxruntime.InferenceSession(source)
    (image,) = plain.get_inputs()
    raw = gzip.decompress((cases / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((cases / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:108]
    answers = []
    for pixels in np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)[:100]:
        Image.fromarray(pixels).save(tmp_path / "digit.png")
        decoded = np.asarray(Image.open(tmp_path / "digit.png"))[None, :, :, None]
        (answer,) = made.run({image.name: decoded}).values()
        (scores,) = plain.run(None, {image.name: decoded.reshape(1, 1, 28, 28).astype(np.float32)})
        assert answer == scores.argmax(-1)
        answers.append(int(answer[0]))
    assert np.mean(np.array(answers) == np.frombuffer(labels, np.uint8)) >= 0.98


@pytest.mark.parametrize("target", ["onnxruntime", "tflite", "android"])
def test_a_photograph_is_classified(target, cases: Path, tmp_path: Path) -> None:
    """Of CIFAR's ten classes; its model takes pixels of 0 to 255, of which the plain one is given the same."""
    source = cases / "mlperf-ic" / "pretrainedResnet.tflite"
    how = {"preprocess": "image:64,crop:0.5,mean:0,std:1", "postprocess": "top:3", "output": tmp_path / "out"}
    made = convertkit.export(source, target, **how)
    plain = Interpreter(str(source))
    plain.allocate_tensors()
    (given,), (got,) = plain.get_input_details(), plain.get_output_details()
    for name in ("1face", "3faces", "4faces"):
        photo = Image.open(cases / "blazeface" / f"{name}.png").convert("RGB").resize((64, 64))
        photo.save(tmp_path / "photo.jpg", quality=90)
        pixels = np.asarray(Image.open(tmp_path / "photo.jpg"))[None]
        plain.set_tensor(given["index"], pixels[:, 16:48, 16:48].astype(np.float32))
        plain.invoke()
        scores = plain.get_tensor(got["index"])[0]
        best = scores.argsort()[::-1][:3]
        found = {each.dtype.kind: each[0] for each in made.run({given["name"]: pixels}).values()}
        np.testing.assert_array_equal(found["i"], best)
        np.testing.assert_allclose(found["f"], scores[best], rtol=1e-4)
