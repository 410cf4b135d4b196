"""The trained models of fixtures/: small, complete, described, and right once they are delivered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import convertkit

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"
FOLDERS = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
LARGEST_MODEL = 200_000


def model_of(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if path.stem in ("model", "saved_model")]
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_fixture_is_described(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    files = {path.name + "/" * path.is_dir() for path in folder.iterdir()} - {"README.md", "__pycache__/"}
    assert {name for name in files if f"`{name}`" in page} == files
    assert f"fixtures/{folder.name}/train.py" in (folder / "train.py").read_text()


@pytest.mark.parametrize("folder", [each for each in FOLDERS if each.name != "digits"], ids=lambda folder: folder.name)
def test_a_model_is_small(folder: Path) -> None:
    model = model_of(folder)
    files = [path for path in model.rglob("*") if path.is_file()] if model.is_dir() else [model]
    assert sum(path.stat().st_size for path in files) <= LARGEST_MODEL


def test_make_trains_every_fixture() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nfixtures:")[2].partition("\n\n")[0]
    assert "fixtures/*/train.py" in recipe


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_keywords_are_heard_from_call_to_call(tmp_path: Path, target: str) -> None:
    """The delivered model is right on every word only if an app can carry its state."""
    result = convertkit.export(FIXTURES / "keywords" / "model.pt2", target, output=tmp_path / "out", progress=False)
    data = np.load(FIXTURES / "keywords" / "test.npz")
    heard = []
    for word in data["frames"]:
        state: dict[str, np.ndarray] = {}
        for call in np.split(word, 5):
            outputs = result.run({"frames": call[None], **state})
            state = {"state.state": outputs["next_state.state"]}
        heard.append(outputs["output"].argmax())
    assert (np.array(heard) == data["label"]).all()
    forgetful = [result.run({"frames": word[None, -8:]})["output"].argmax() for word in data["frames"]]
    assert (np.array(forgetful) == data["label"]).mean() < 0.8, "the state is what makes it right"


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_the_detector_finds_what_is_there(tmp_path: Path, target: str) -> None:
    folder = FIXTURES / "detector"
    calib = folder / "calib.npz"
    result = convertkit.export(
        folder / "saved_model", target, calib=str(calib), output=tmp_path / "out", progress=False
    )
    images, truth = np.load(calib)["image"], np.load(folder / "truth.npz")
    for image, corners, count in zip(images, truth["corners"], truth["count"], strict=True):
        outputs = result.run({"image": image[None]})
        assert outputs["count"] == count
        boxes = outputs["boxes"][:count]
        assert all(np.abs(boxes - wanted).max(1).min() < 1.5 for wanted in corners[:count])
    assert all(report_step["parity"]["versus_source"]["passed"] for report_step in result.report["steps"])


@pytest.mark.parametrize(
    ("source", "target", "options", "accuracy"),
    [
        ("brackets/model.onnx", "onnxruntime", {}, 89.4),
        ("brackets/model.onnx", "tflite", {"w8": True}, 88.4),
        ("keras-digits/model.keras", "tflite", {"int8": True, "full_integer": True, "io_dtype": "int8"}, 97.3),
        ("flax-digits/model.stablehlo", "onnxruntime", {}, 98.3),
        ("flax-digits/model.stablehlo", "tflite", {}, 98.3),
    ],
)
def test_classifiers_keep_their_accuracy(tmp_path, source, target, options, accuracy):
    path = FIXTURES / source
    data = path.with_name("calib.npz")
    calib = {"calib": str(data)} if data.exists() else {}
    gate = {"eval": str(path.with_name("test.npz")), "max_drop": 1}
    result = convertkit.export(path, target, output=tmp_path / "out", progress=False, **calib, **options, **gate)
    assert result.passed
    assert result.report["evaluation"]["after"] >= accuracy
