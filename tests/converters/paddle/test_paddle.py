"""PaddlePaddle as a source: told apart by content, refused without its engine, right with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.converters.paddle import converter
from convertkit.converters.paddle.engine import engine
from convertkit.engines import environments
from convertkit.errors import MissingEngine, SourceError

_MAKE = """
import sys
import paddle
from paddle import nn

paddle.seed(3)
folder = sys.argv[1]

class Images(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2D(1, 4, 3, padding=1), nn.BatchNorm2D(4)
        self.pool, self.dense = nn.MaxPool2D(2), nn.Linear(64, 3)

    def forward(self, x):
        h = self.pool(nn.functional.relu(self.norm(self.conv(x))))
        return self.dense(paddle.flatten(h, 1))

class Two(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 6, direction="bidirect")

    def forward(self, b, a):
        y, _ = self.lstm(a)
        return y * b, paddle.sum(y, -1)

spec = paddle.static.InputSpec
images, two = Images(), Two()
images.eval(), two.eval()
paddle.jit.save(images, folder + "/images", input_spec=[spec([None, 1, 8, 8], "float32", name="x")])
both = [spec([1], "float32", name="b"), spec([None, 7, 5], "float32", name="a")]
if sys.argv[2:] != ["older"]:  # which PaddlePaddle 3 no longer writes of an LSTM
    paddle.jit.save(two, folder + "/two", input_spec=both)
"""


def told_apart(folder: Path) -> Path:
    (folder / "m.json").write_text('{"base_code": {"magic": "pir", "trainable": true}, "program": {}}')
    (folder / "m.pdiparams").write_bytes(b"")
    return folder / "m.json"


def test_sniffs_by_content(tmp_path):
    path = told_apart(tmp_path)
    assert converter.sniff(str(path)) == "paddle"
    assert list(converter.files_beside(str(path))) == [tmp_path / "m.pdiparams"]
    (tmp_path / "m.pdmodel").write_bytes(b"\x0a\x10")
    assert converter.sniff(str(tmp_path / "m.pdmodel")) == "paddle"
    path.write_text('{"nodes": []}')
    assert converter.sniff(str(path)) is None
    (tmp_path / "m.pdiparams").unlink()
    assert converter.sniff(str(tmp_path / "m.pdmodel")) is None


def test_without_the_engine_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVERTKIT_ENGINES", str(tmp_path / "none"))
    path = told_apart(tmp_path)
    with pytest.raises(MissingEngine, match="convertkit engines install paddle") as caught:
        convertkit.export(path, "onnxruntime", output=tmp_path / "out")
    assert caught.value.exit_code == 4
    assert not (tmp_path / "out").exists()


def test_requirements_are_pinned():
    assert {"paddlepaddle", "paddle2onnx", "numpy", "onnx"} <= set(engine.packages)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models that PaddlePaddle has saved; skips where the engine is not installed."""
    found = environments.installed(engine)
    if found is None:
        pytest.skip("the engine paddle is not installed: convertkit engines install paddle")
    folder = tmp_path_factory.mktemp("paddle")
    (folder / "make.py").write_text(_MAKE)  # PaddlePaddle reads the source of what it saves
    older = folder / "older"
    older.mkdir()
    before_pir = {**os.environ, "FLAGS_enable_pir_api": "0"}
    command = [found.python, folder / "make.py"]
    subprocess.run([*command, folder], check=True, capture_output=True)
    subprocess.run([*command, older, "older"], check=True, capture_output=True, env=before_pir)
    return folder


@pytest.mark.parametrize(
    ("file", "target"),
    [("images.json", "onnxruntime"), ("images.json", "tflite"), ("older/images.pdmodel", "onnxruntime")],
)
def test_images(models, tmp_path, file, target):
    result = convertkit.export(models / file, target, output=tmp_path / "out")
    assert result.artifact.inputs[0].source_shape[1:] == (1, 8, 8)
    assert result.run({"x": np.ones((2, 1, 8, 8), np.float32)})["fetch_name_0"].shape == (2, 3)


def test_two_inputs_keep_their_places(models, tmp_path):
    """Verified by PaddlePaddle, which takes them by their order, as the file does by their names."""
    result = convertkit.export(models / "two.json", "onnxruntime", output=tmp_path / "out")
    assert {spec.name for spec in result.artifact.inputs} == {"a", "b"}
    assert len(result.artifact.outputs) == 2


def test_a_damaged_model_is_one_sentence(models, tmp_path):
    (tmp_path / "m.json").write_bytes((models / "images.json").read_bytes()[:2000])
    (tmp_path / "m.pdiparams").write_bytes((models / "images.pdiparams").read_bytes())
    with pytest.raises(SourceError, match=r"PaddlePaddle does not load m\.json"):
        convertkit.export(tmp_path / "m.json", "onnxruntime", output=tmp_path / "out")
