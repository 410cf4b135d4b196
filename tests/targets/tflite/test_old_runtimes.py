"""``min_runtime_version`` held against old runtimes: what claims to run there does, with the same numbers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx import helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.graph import Operation
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.runtimes import min_runtime_version
from convertkit.targets.tflite.tensor import Tensor
from tests.conformance import suite

HERE = Path(__file__).parent
DIGITS = HERE.parents[2] / "fixtures" / "digits"
NEWEST_OPSET = 28
BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Equal", "Less", "Mod", "PRelu", "Where")


@dataclass(frozen=True)
class Runtime:
    """A wheel of an old runtime, and a Python that it was made for."""

    package: str
    version: str
    python: str


RUNTIMES = (Runtime("tflite-runtime", "2.7.0", "3.9"), Runtime("tflite-runtime", "2.14.0", "3.11"))


@pytest.mark.parametrize(
    ("code", "dtype", "shapes", "wanted"),
    [
        ("ADD", "float32", [(2, 3, 4, 5), (5,)], "1.15.0"),
        ("SUB", "float32", [(1, 2, 3, 4, 5), (5,)], "2.3.0"),
        ("ADD", "int32", [(1, 2, 3, 4, 5), (5,)], "2.14.0"),
        ("ADD", "int32", [(1, 2, 3, 4, 5), (1, 2, 3, 4, 5)], "1.15.0"),
        ("MUL", "float32", [(1, 1, 2, 3, 4, 5), (5,)], "2.14.0"),
        ("POW", "float32", [(1, 2, 3, 4, 5), ()], "2.23.0"),
        ("LESS_EQUAL", "int16", [(2,), (2,)], "2.23.0"),
    ],
)
def test_what_kernels_learnt_without_a_new_version(code, dtype, shapes, wanted):
    inputs = tuple(Tensor(f"x{place}", shape, dtype) for place, shape in enumerate(shapes))
    assert min_runtime_version([Operation(code, inputs, (Tensor("y", shapes[0], dtype),), {})]) == wanted


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Every conformance case, broadcasts of many dimensions, and the digits model: files and feeds."""
    folder = tmp_path_factory.mktemp("artifacts")
    sources = tmp_path_factory.mktemp("sources")
    suite.write(suite.eligible(), sources)
    for path in sorted(sources.glob("*.onnx")):
        with np.load(path.with_suffix(".npz"), allow_pickle=True) as data:
            feed = {name.removeprefix("in:"): data[name] for name in data.files if name.startswith("in:")}
        if all(value.dtype.kind not in "OUS" for value in feed.values()):
            compile_into(folder / f"{path.stem}.tflite", load_model(path), feed)
    for op in BROADCASTING:
        for rank in (5, 6):
            for kind in ("float32", "int32", "int64"):
                model, feed = broadcast(op, np.dtype(kind), rank)
                compile_into(folder / f"{op}_{kind}_{rank}.tflite", model, feed)
    export = convertkit.export(DIGITS / "model.pt", "tflite", output=tmp_path_factory.mktemp("delivered") / "digits")
    shutil.copy(export.artifact.path, folder / "digits.tflite")
    (spec,) = export.artifact.inputs
    with np.load(DIGITS / "test.npz") as data:
        np.savez(folder / "digits.feed.npz", **{spec.name: spec.encode(data[spec.name][:1])})
    return folder


def compile_into(path, model, feed):
    """Write artifact and feed; nothing where the target refuses the model."""
    try:
        compile_model(canonicalize(model, NEWEST_OPSET), Options("nchw")).write(path)
    except Unsupported:
        return
    np.savez(path.with_suffix(".feed.npz"), **feed)


def broadcast(op, kind, rank):
    """One operator whose second input has the size of the middle axis only."""
    rng = np.random.default_rng(3)
    shape = (2, 3, 2, 3, 2, 2)[:rank]
    narrow = (shape[-3], 1, 1)
    feed = {"x": (1 + 3 * rng.random(shape)).astype(kind), "y": (1 + 3 * rng.random(narrow)).astype(kind)}
    if op == "Where":
        feed = {"c": rng.random(shape) < 0.5, **feed}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feed.items()
    ]
    kinds = onnx.TensorProto.BOOL if op in ("Equal", "Less") else helper.np_dtype_to_tensor_dtype(kind)
    output = helper.make_tensor_value_info("z", kinds, shape)
    graph = helper.make_graph([helper.make_node(op, list(feed), ["z"])], "g", inputs, [output])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)), feed


@pytest.mark.nightly
@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.version)
def test_what_claims_an_old_runtime_runs_there(runtime, artifacts, tmp_path):
    python = interpreter(runtime.python)
    if python is None:
        pytest.skip(f"no python{runtime.python}, which {runtime.package} {runtime.version} was made for")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{runtime.package}=={runtime.version}", "numpy<2"], check=True)
    place = tmp_path / "claimed"
    place.mkdir()
    for path in artifacts.glob("*.tflite"):
        if numbers(claim(path)) <= numbers(runtime.version):
            for file in (path, path.with_suffix(".feed.npz")):
                shutil.copy(file, place)
    service = [tmp_path / "venv/bin/python", HERE / "old_runtime_service.py", place]
    subprocess.run(service, check=True, stderr=subprocess.DEVNULL)
    claimed = sorted(place.glob("*.tflite"))
    assert len(claimed) > 800
    assert place / "digits.tflite" in claimed
    assert {path.stem: fault for path in claimed if (fault := departure(path))} == {}


def interpreter(version):
    """A Python of this version that runs: pyenv puts a shim of every one on the path and hides what it selects not."""
    names = [f"python{version}"]
    if shutil.which("pyenv"):
        known = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False).stdout
        found = [each.strip() for each in known.splitlines() if each.strip().startswith(f"{version}.")]
        for each in reversed(found):
            prefix = subprocess.run(["pyenv", "prefix", each], capture_output=True, text=True, check=False).stdout
            names.append(f"{prefix.strip()}/bin/python")
    return next((path for name in names if (path := shutil.which(name)) and runs(path)), None)


def runs(python):
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def test_a_shim_without_an_interpreter_is_none(tmp_path, monkeypatch):
    shim = tmp_path / "python9.9"
    shim.write_text("#!/bin/sh\necho 'pyenv: python9.9: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("python9.9")
    assert interpreter("9.9") is None
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert interpreter("9.9") == str(shim)


def claim(path):
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    notes = {note.name.decode(): bytes(model.buffers[note.buffer].data) for note in model.metadata}
    return notes["min_runtime_version"].rstrip(b"\0").decode()


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def departure(path):
    """What is wrong with the old runtime's answer, held against today's; empty where nothing is."""
    error = path.with_suffix(".error")
    if error.exists():
        return error.read_text()
    runner = Interpreter(model_path=str(path), num_threads=1)
    with np.load(path.with_suffix(".feed.npz")) as feed:
        inputs = runner.get_input_details()
        for detail in inputs:
            runner.resize_tensor_input(detail["index"], feed[detail["name"]].shape)
        runner.allocate_tensors()
        for detail in inputs:
            runner.set_tensor(detail["index"], feed[detail["name"]])
    runner.invoke()
    with np.load(path.with_suffix(".result.npz")) as result:
        for detail in runner.get_output_details():
            wanted, found = runner.get_tensor(detail["index"]), result[detail["name"]]
            if wanted.shape != found.shape or not close(wanted, found, detail["quantization"][0]):
                return f"{detail['name']} differs"
    return ""


def close(wanted, found, lsb):
    """Within 1e-4 of the largest value: exp and the like have become more exact; integers within one step."""
    wanted, found = wanted.astype(np.float64), found.astype(np.float64)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-6)
    return np.allclose(found, wanted, rtol=0, atol=1 if lsb else 1e-4 * largest, equal_nan=True)
