"""The generated Kotlin compiles without a warning, and its golden test passes on a desktop's Java.

Android, the runtimes and JUnit are stubs; the runtime's stub answers what the real one gave for exactly these bytes.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.targets.mobile.deflated import deflated
from tests.installed import needs
from tests.targets.mobile import android_packages as made

needs("ai_edge_litert")
needs("PIL")
if lacking := [tool for tool in ("kotlinc", "javac", "java") if shutil.which(tool) is None]:
    pytest.skip(f"{', '.join(lacking)}: not installed", allow_module_level=True)

pytestmark = pytest.mark.nightly  # kotlinc takes half a minute of a core for all packages

LABELS = 'cat\ndog\n$bird\nfish "x"\nzebra\n'
NORMALIZED = {"normalization": "image:123.675,116.28,103.53/58.395,57.12,57.375"}
CASES = {
    "floats": ("pixels3", {"images": "crop:0.875,bilinear", **NORMALIZED}, {"image": "image"}),
    "integers": ("pixels1", {"int8": True, "full_integer": True, "io_dtype": "int8"}, {"image": "image"}),
    "planar": (
        "pixels3",
        {"images": "pad:114,bicubic,bgr", **NORMALIZED},
        {"image": "image", "runtime": "onnxruntime"},
    ),
    "lanczos": ("pixels1", {"images": "lanczos"}, {"image": "image", "ai_pack": True}),
    "nearest": ("pixels3", {"images": "nearest,crop:0.9"}, {"image": "image"}),
    "prepared": (
        "bytes3",
        {"preprocess": "image:30x20,crop:0.8,mean:127.5,std:127.5", "postprocess": "top:2", "images": "crop:0.9"},
        {"image": "image"},
    ),
    "named": (
        "bytes3",
        {"preprocess": "image:24x17,bgr,mean:0,std:255", "postprocess": "argmax"},
        {"runtime": "onnxruntime"},
    ),
    "boxes": (
        "detector",
        {"preprocess": "image:24x17,mean:127.5,std:127.5", "postprocess": made.DETECTIONS},
        {"image": "image"},
    ),
    "nameless": (
        "detector",
        {"preprocess": "image:24x17,mean:127.5,std:127.5", "postprocess": f"{made.DETECTIONS},multi"},
        {"runtime": "onnxruntime"},
    ),
    "types": ("types", {}, {"runtime": "onnxruntime"}),
    "types_litert": ("types", {}, {}),
    "heard": ("sound", {"preprocess": "audio:16000"}, {}),
    "wide": ("sound", {"preprocess": "audio:8000,int32,raw"}, {"runtime": "onnxruntime"}),
    "sounds": ("sound", {}, {"audio": "sound"}),
    "keywords": ("keywords", {"static": "N=1"}, {}),
    "deflated": ("pixels3", {"compress": True}, {}),
    "deflated_words": ("keywords", {"static": "N=1", "compress": True}, {}),
    "deflated_onnx": ("sound", {"compress": True}, {"runtime": "onnxruntime"}),
}


def source(kind: str, folder: Path) -> Path:
    if kind == "keywords":
        return Path("fixtures/keywords/model.pt2")
    models = {"types": made.several_types, "sound": made.waveform, "detector": lambda: made.detector(24, 17)}
    build = models.get(kind, lambda: made.pixels(int(kind[-1]), 24, 17))
    return made.saved(build(), folder / f"{kind}.onnx")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Each case's result, and the class path of all of them."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "labels.txt").write_text(LABELS)
    results = {}
    for name, (kind, flags, options) in CASES.items():
        given = dict(flags)
        if kind.startswith(("pixels", "bytes")) or name == "boxes":
            given["label_file"] = str(folder / "labels.txt")
        if kind.startswith("pixels"):
            given["calib"] = np.random.default_rng(0).random((8, int(kind[-1]), 24, 17), np.float32)
        results[name] = convertkit.export(
            source(kind, folder), "android", output=folder / name, **given,
            target_options={"android": {"package": f"com.example.{name}", **options}},
        )  # fmt: skip
    return results, made.compiled([each.path for each in results.values()], folder / "java")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_golden_vectors_pass(packages, name, tmp_path):
    results, class_path = packages
    result = results[name]
    test = f"com.example.{name}.{''.join(map(str.title, name.split('_')))}GoldenTest"
    calibration = None
    if CASES[name][0].startswith("pixels"):
        data = np.random.default_rng(0).random((8, int(CASES[name][0][-1]), 24, 17), np.float32)
        calibration = [{"image": each[None]} for each in data]
    properties = made.laid_out(result.path, result.artifact, tmp_path, calibration)
    done = made.ran(class_path, properties, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass goldenVectors" in done.stdout
    assert ("pass picturesAreWhatTrainingSaw" in done.stdout) == ("image" in CASES[name][2])
    assert ("pass soundsAreWhatTrainingHeard" in done.stdout) == ("audio:" in CASES[name][1].get("preprocess", ""))
    compressed = made.ran(class_path, [*properties, f"-Dcompressed={'.'.join(map(str, result.path.rglob('*')))}"], test)
    assert compressed.returncode == 0, compressed.stdout


@pytest.mark.timeout(300)
def test_a_deflated_model_is_decoded_once(packages, tmp_path):
    """The second start reads the file of the first, another model's file goes, and a damaged asset is refused."""
    results, class_path = packages
    properties = made.laid_out(results["deflated_onnx"].path, results["deflated_onnx"].artifact, tmp_path, None)
    test = "com.example.deflated_onnx.DeflatedOnnxGoldenTest"
    (older := tmp_path / "files" / f"com.example.deflated_onnx.{'0' * 64}").write_bytes(b"older")
    assert made.ran(class_path, properties, test).returncode == 0
    (decoded,) = (tmp_path / "files").iterdir()
    assert not older.exists()
    asset = tmp_path / "assets" / "deflated_onnx.onnx.deflate"
    asset.rename(whole := tmp_path / "whole")
    assert made.ran(class_path, properties, test).returncode == 0
    decoded.write_bytes(decoded.read_bytes()[:-1])
    assert made.ran(class_path, properties, test).returncode == 1
    asset.write_bytes(deflated(b"another model"))
    done = made.ran(class_path, properties, test)
    assert done.returncode == 1
    assert "is another model than the one that this class was generated for" in done.stdout + done.stderr
    assert [path.name for path in (tmp_path / "files").iterdir()] == [decoded.name]
    whole.rename(asset)
    assert made.ran(class_path, properties, test).returncode == 0


@pytest.mark.timeout(300)
def test_a_wrong_number_fails(packages, tmp_path):
    """An answer that differs by more than is allowed, and a picture that differs at all."""
    results, class_path = packages
    result = results["floats"]
    data = np.random.default_rng(0).random((8, 3, 24, 17), np.float32)
    properties = made.laid_out(result.path, result.artifact, tmp_path, [{"image": each[None]} for each in data])
    for file in (tmp_path / "recorded").iterdir():
        answer = np.frombuffer(file.read_bytes(), np.float32).copy()
        answer[-1] += 1e-4
        file.write_bytes(answer.tobytes())
    picture = tmp_path / "assets" / "golden" / "picture.bin"
    colours = np.frombuffer(picture.read_bytes(), np.uint32).copy()
    colours[1000:1040] ^= 0x808080
    picture.write_bytes(colours.tobytes())
    done = made.ran(class_path, properties, "com.example.floats.FloatsGoldenTest")
    assert done.returncode == 1
    assert "FAIL goldenVectors" in done.stdout
    assert "FAIL picturesAreWhatTrainingSaw" in done.stdout
