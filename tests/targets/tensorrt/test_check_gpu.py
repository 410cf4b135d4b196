"""``check_gpu.py`` of a package: what it compares, what it says, with what it ends.

There is no GPU here: ONNX Runtime's CPU stands in for its CUDA provider, and for an engine of TensorRT, whose tensors
lie at addresses as they do on a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

import convertkit
from convertkit.parity.golden import Vector
from convertkit.targets.tensorrt.edges import Edge, LeftOut
from convertkit.targets.tensorrt.golden import Golden
from convertkit.targets.tensorrt.readme import Facts, readme
from tests import onnx_models


def exported(folder: Path, proto: onnx.ModelProto, **how: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, folder / "source.onnx")
    options = {"tensorrt": {"profile": ["N=1,8,32"]}}
    convertkit.export(folder / "source.onnx", "tensorrt", output=folder / "out", target_options=options, **how)
    return folder / "out"


def program(package: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_gpu", package / "check_gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return exported(tmp_path / "one", onnx_models.mlp())


def with_cuda(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check.RUNTIMES, "ONNX Runtime, CUDA", check.RUNTIMES[check.CPU])


def test_without_a_gpu_nothing_is_claimed(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program(package).main(["--repeat", "1"]) == 2
    said = capsys.readouterr()
    assert "ONNX Runtime, CPU" in said.out
    assert "agrees on" in said.out
    assert "ONNX Runtime, CUDA: not run: ONNX Runtime is here without its CUDA provider" in said.out
    assert said.err == "check_gpu.py: nothing here runs the model on a GPU\n"


def test_edge_inputs_are_compared_too(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = program(package)
    with_cuda(check, monkeypatch)
    assert check.main(["--repeat", "1", "--json", str(tmp_path / "told.json")]) == 0
    (_, cuda) = json.loads((tmp_path / "told.json").read_text())
    told = json.loads((package / "constraints.json").read_text())["golden"]
    names = [edge["name"] for edge in told["edges"]]
    assert {"zeros", "1e-6 of the scale", "constant", "loud"} <= set(names)
    assert cuda["vectors"] == told["vectors"] + len(names)
    assert cuda["differ"] == []


def test_another_model_differs(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = exported(tmp_path / "two", onnx_models.mlp(seed=2))
    (package / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    check = program(package)
    with_cuda(check, monkeypatch)
    assert check.main(["--repeat", "1"]) == 1


def test_one_wrong_edge_is_named(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    check = program(package)
    zeros = next(edge for edge in check.edges(json.loads((package / "constraints.json").read_text())))
    wrong = {**zeros, "outputs": {name: value + 1 for name, value in zeros["outputs"].items()}}
    monkeypatch.setattr(check, "edges", lambda _: [wrong])
    with_cuda(check, monkeypatch)
    assert check.main(["--repeat", "1"]) == 1
    assert "differs on zeros" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["constraints.json", "golden/inputs.json", "golden/outputs.json", "golden/edges.npz"])
@pytest.mark.parametrize("kept", [None, b"", b"{}"])
def test_half_a_package_is_one_sentence(
    package: Path, file: str, kept: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / file).unlink() if kept is None else (package / file).write_bytes(kept)
    assert program(package).main(["--repeat", "1"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("check_gpu.py: this is not a whole package: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("words", [["--batch", "0"], ["--repeat", "-1"], ["--batch", "two"]])
def test_numbers_are_whole_and_positive(package: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        program(package).main(words)
    assert f"argument {words[0]}: invalid" in capsys.readouterr().err


def test_what_is_infinitely_far_is_no_number_in_json(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = program(package)
    with_cuda(check, monkeypatch)
    monkeypatch.setattr(check, "share", lambda vector, got: np.inf)
    assert check.main(["--repeat", "1", "--json", str(tmp_path / "told.json")]) == 1
    (row, _) = json.loads((tmp_path / "told.json").read_text())
    assert row["share_of_allowed"] is None
    assert "another size, or no number" in capsys.readouterr().out


def test_a_number_against_none_differs(package: Path) -> None:
    check = program(package)
    vector = {"outputs": {"y": np.array([1.0, np.nan, np.inf])}, "atol": {"y": 0.5}}
    assert check.share(vector, {"y": np.array([1.25, np.nan, np.inf])}) == 0.5
    assert check.share(vector, {"y": np.array([1.0, 2.0, np.inf])}) == np.inf
    assert check.share(vector, {"y": np.array([1.0, np.nan, -np.inf])}) == np.inf
    assert check.share(vector, {"y": np.array([[1.0, np.nan, np.inf]])}) == np.inf


def test_what_rounding_decides_is_not_compared(package: Path) -> None:
    vector = {"outputs": {"y": np.array([1.0]), "place": np.array([3])}, "atol": {"y": 0.5, "place": None}}
    got = {"y": np.array([1.25]), "place": np.array([7])}
    assert program(package).share(vector, got) == 0.5
    assert program(package).share({**vector, "atol": {"y": 0.5, "place": 0.0}}, got) == np.inf


def test_the_readme_tells_what_is_not_compared(tmp_path: Path) -> None:
    undecided = Edge("zeros", Vector({}, {}), {"place": math.inf, "y": 0.1})
    golden = Golden((), (undecided,), (LeftOut("loud", "the runner fails"),), {"place": 0.0, "y": 0.1}, 0.01, "ONNX")
    told = readme(Facts("10.0", "7.5", (), "", 0, golden, ()))
    assert "Rounding decides them in place for some inputs; these are not compared." in told
    assert "- loud: the runner fails\n" in told
    plain = readme(Facts("10.0", "7.5", (), "", 0, replace(golden, edges=(), left_out=()), ()))
    assert "Rounding decides" not in plain
    assert "not in `golden/edges.npz`" not in plain


def test_bfloat16_is_not_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime has no such products there; the GPU is asked all the same."""
    package = exported(tmp_path / "short", onnx_models.mlp(), bf16=True)
    assert program(package).main(["--repeat", "1"]) == 2
    said = capsys.readouterr().out
    assert "ONNX Runtime, CPU: not run: ONNX Runtime does not load the model: " in said
    assert "ONNX Runtime, CUDA: not run: ONNX Runtime is here without its CUDA provider" in said


def test_a_runtime_that_fails_is_told_and_others_are_run(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    check = program(package)
    with_cuda(check, monkeypatch)
    monkeypatch.setattr(check.OnnxRuntime, "call", lambda *_: {}["none"])
    assert check.main(["--repeat", "1", "--json", str(tmp_path / "told.json")]) == 1
    said = capsys.readouterr().out
    assert "ONNX Runtime, CPU: failed: KeyError: " in said
    assert "TensorRT: not run: " in said
    assert [row["runtime"] for row in json.loads((tmp_path / "told.json").read_text())] == [
        check.CPU,
        "ONNX Runtime, CUDA",
    ]


def test_what_is_timed_has_the_size_that_is_asked_for(package: Path) -> None:
    check = program(package)
    facts = json.loads((package / "constraints.json").read_text())
    inputs = next(check.golden(facts))["inputs"]
    assert check.timed(facts, inputs, None) is inputs
    assert check.timed(facts, inputs, 6)["x"].shape == (6, 5)
    np.testing.assert_array_equal(check.timed(facts, inputs, 1)["x"], inputs["x"][:1])


class Memory:
    """CUDA's runtime over this machine's memory."""

    cudaError_t = SimpleNamespace(cudaSuccess=0)
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def cudaMalloc(self, size: int) -> tuple[int, int]:
        self.kept.append(np.zeros(size, np.uint8))
        return 0, self.kept[-1].ctypes.data

    def cudaMemcpy(self, to: int, from_: int, size: int, kind: int) -> tuple[int]:
        assert kind == 4
        ctypes.memmove(to, from_, size)
        return (0,)

    def cudaStreamCreate(self) -> tuple[int, int]:
        return 0, 7

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        return (0 if stream == 7 else 1,)


class Engine:
    """A model as TensorRT's engine and its context: tensors by name, at addresses."""

    def __init__(self, model: bytes) -> None:
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.num_io_tensors = len(self.inputs) + len(self.outputs)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def get_tensor_name(self, place: int) -> str:
        return [*self.inputs, *self.outputs][place]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name in self.inputs else "out"

    def get_tensor_dtype(self, name: str) -> str:
        return "float"

    def create_execution_context(self) -> Engine:
        return self

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        self.shapes[name] = shape

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        zeros = {key: np.zeros(shape, np.float32) for key, shape in self.shapes.items()}
        return self.session.run([name], zeros)[0].shape

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        given = {name: self._at(name, shape) for name, shape in self.shapes.items()}
        for name, value in zip(self.outputs, self.session.run(self.outputs, given), strict=True):
            self._at(name, value.shape)[...] = value
        return stream == 7

    def _at(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        raw = (ctypes.c_float * int(np.prod(shape))).from_address(self.addresses[name])
        return np.ctypeslib.as_array(raw).reshape(shape)


@pytest.fixture
def tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    class Logger:
        WARNING = 1

        def __init__(self, level: int) -> None:
            self.level = level

    fake = SimpleNamespace(
        __version__="11.4.0",
        Logger=Logger,
        Runtime=lambda _: SimpleNamespace(deserialize_cuda_engine=lambda data: Engine(data) if data else None),
        TensorIOMode=SimpleNamespace(OUTPUT="out"),
        nptype=lambda _: np.float32,
    )
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    bindings = SimpleNamespace(runtime=Memory())
    for name, module in {"cuda": SimpleNamespace(bindings=bindings), "cuda.bindings": bindings}.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_an_engine_is_run_and_compared(
    package: Path, tensorrt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = program(package)
    assert check.main(["--repeat", "1"]) == 2
    assert "TensorRT: not run: " in capsys.readouterr().out, "no engine was built"
    (package / "model.engine").write_bytes(b"")
    assert check.main(["--repeat", "1"]) == 2
    assert "is not an engine of this release for this GPU" in capsys.readouterr().out
    (package / "model.engine").write_bytes((package / "model.onnx").read_bytes())
    assert check.main(["--repeat", "1"]) == 0
    assert "TensorRT (11.4.0): agrees on" in capsys.readouterr().out
    other = exported(tmp_path / "two", onnx_models.mlp(seed=2))
    assert check.main(["--repeat", "1", "--engine", str(other / "model.onnx")]) == 1


def test_an_engine_gets_the_types_that_it_has(package: Path, tensorrt: None) -> None:
    """TensorRT 8 makes int32 of the model's int64; here it is float32 of float64."""
    engine = SimpleNamespace(engine=package / "model.onnx")
    given = np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)
    runtime = program(package).TensorRt({}, engine)
    (wanted,), (got,) = (runtime.run({"x": each}).values() for each in (given, given.astype(np.float64)))
    assert wanted.any()
    np.testing.assert_array_equal(got, wanted)


def test_what_it_reads_is_the_same_each_time(package: Path, tmp_path: Path) -> None:
    again = exported(tmp_path / "again", onnx_models.mlp())
    kept = (package / "golden" / "edges.npz").read_bytes()
    assert (again / "golden" / "edges.npz").read_bytes() == kept
