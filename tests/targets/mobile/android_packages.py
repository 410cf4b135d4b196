"""Small networks as Android packages, and what compiles and runs their code on a desktop."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convertkit.artifact import Artifact
from convertkit.parity.golden import golden_feeds
from convertkit.targets.android.checks import packaged_model
from convertkit.targets.android.runner import AndroidRunner
from convertkit.targets.mobile.golden import little
from convertkit.targets.mobile.order import names_of

STUBS = Path(__file__).with_name("stubs")
_KOTLIN_LIBRARY = Path("/usr/share/kotlin/kotlinc/lib/kotlin-stdlib.jar")


def several_types() -> onnx.ModelProto:
    """Inputs of four types, whose names are not identifiers or are words of Kotlin."""
    ins = [("class", TensorProto.INT32), ("2nd/value", TensorProto.INT64), ("is_on", TensorProto.BOOL)]
    nodes = [
        helper.make_node("Cast", ["class"], ["a"], "a", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["2nd/value"], ["b"], "b", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["a", "w"], ["aw"], "aw"),
        helper.make_node("Add", ["aw", "b"], ["ab"], "ab"),
        helper.make_node("Where", ["is_on", "ab", "x-$y"], ["out put"], "where"),
        helper.make_node("Add", ["class", "class"], ["val"], "twice"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [
            *(helper.make_tensor_value_info(name, kind, [2, 3]) for name, kind in ins),
            helper.make_tensor_value_info("x-$y", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("out put", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("val", TensorProto.INT32, [2, 3]),
        ],
        [numpy_helper.from_array(np.array([0.5, -1.25, 3.0], np.float32), "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def pixels(channels: int, height: int, width: int) -> onnx.ModelProto:
    """A network on pictures, channels first."""
    rng = np.random.default_rng(channels)
    weight = rng.normal(0, 0.3, (5, channels, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Softmax", ["f"], ["scores"], "softmax"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", channels, height, width])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 5])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def detector(height: int, width: int) -> onnx.ModelProto:
    """A detector on pictures: a box, scores of five classes and one point for every third of 3 x 3 pixels."""
    rng = np.random.default_rng(7)
    weight = rng.normal(0, 0.6, (11, 3, 3, 3)).astype(np.float32)
    bias = np.array([0, 0, -3, -3, *[-0.5] * 5, 0, 0], np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], "conv", strides=[3, 3]),
        helper.make_node("Reshape", ["c", "columns"], ["r"], "reshape"),
        helper.make_node("Sigmoid", ["r"], ["found"], "sigmoid"),
    ]
    count = ((height - 3) // 3 + 1) * ((width - 3) // 3 + 1)
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, height, width])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, ["N", 11, count])],
        [
            numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b"),
            numpy_helper.from_array(np.array([0, 11, -1]), "columns"),
        ],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


DETECTIONS = "nms:6,iou:0.4,score:0.5,cxcywh,columns,points:1"
"""What the outputs of :func:`detector` are."""


def waveform() -> onnx.ModelProto:
    """A network on 64 samples of sound."""
    weight = np.random.default_rng(3).normal(0, 0.3, (64, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["sound", "w"], ["loudness"], "product")], "g",
        [helper.make_tensor_value_info("sound", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("loudness", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def saved(made: onnx.ModelProto, path: Path) -> Path:
    """The model in a file."""
    onnx.save(made, path)
    return path


def compiled(packages: list[Path], out: Path) -> list[str]:
    """The class path of all packages' code and tests with stubs; ends the test with what the compilers say."""
    classes, coroutines, apps = out / "classes", out / "coroutines", out / "apps"
    _done(["javac", "-nowarn", "-d", str(classes), *map(str, sorted(STUBS.rglob("*.java")))])
    _done(["kotlinc", "-cp", str(classes), "-d", str(coroutines), *map(str, STUBS.rglob("*.kt"))])
    sources = [str(path) for package in packages for path in sorted((package / "project").rglob("*.kt"))]
    path = [str(classes), str(coroutines)]
    _done(["kotlinc", "-Werror", "-cp", ":".join(path), "-d", str(apps), *sources])
    return [*path, str(apps), str(_KOTLIN_LIBRARY)]


def _done(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    said = "\n".join(line for line in done.stderr.splitlines() if "-noverify" not in line)
    assert done.returncode == 0, f"{command[0]}\n{said}"


def laid_out(result_path: Path, artifact: Artifact, folder: Path, calibration: object, seed: int = 0) -> list[str]:
    """Assets, and what the real runtime gives for the golden inputs, as files; the properties that tell of them."""
    shutil.copytree(next(result_path.glob("project/*/src/androidTest/assets")), folder / "assets")
    _unpacked(artifact.path, folder / "assets")
    names = names_of(packaged_model(artifact.path))
    ins, outs = {each.name: each for each in artifact.inputs}, {each.name: each for each in artifact.outputs}
    (folder / "recorded").mkdir()
    sizes: list[int] = []
    with AndroidRunner(artifact) as runner:
        for feed in golden_feeds(artifact, calibration, seed):  # type: ignore[arg-type]
            given = b"".join(little(ins[name].encode(feed[name])) for name in names[0])
            found = runner.run(feed)
            raw = [little(outs[name].encode(np.asarray(found[name]))) for name in names[1]]
            (folder / "recorded" / hashlib.sha256(given).hexdigest()).write_bytes(b"".join(raw))
            sizes = [len(each) for each in raw]
    of_inputs = [len(little(ins[name].encode(feed[name]))) for name in names[0]]
    (folder / "files").mkdir()
    told = {"assets": folder / "assets", "recorded": folder / "recorded", "files": folder / "files"}
    told |= {"inputs": ",".join(map(str, of_inputs)), "outputs": ",".join(map(str, sizes))}
    told |= {"input_names": ",".join(names[0]), "output_names": ",".join(names[1])}
    return [f"-D{name}={value}" for name, value in told.items()]


def _unpacked(aar: Path, folder: Path) -> None:
    import zipfile

    with zipfile.ZipFile(aar) as opened:
        for name in opened.namelist():
            if name.startswith("assets/"):
                (folder / name.removeprefix("assets/")).write_bytes(opened.read(name))


def ran(class_path: list[str], properties: list[str], *names: str) -> subprocess.CompletedProcess[str]:
    """The tests of these classes."""
    command = ["java", *properties, "-cp", ":".join(class_path), "recorded.RunTests", *names]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
