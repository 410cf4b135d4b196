"""The release package: the script builds, the vectors are Polygraphy's, the facts are the model's."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import ToolError
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.specs import interface
from convertkit.parity.golden import Vector
from convertkit.targets.tensorrt.rounding import changed, otherwise_rounded
from convertkit.targets.tensorrt.sparsity import is_sparse
from convertkit.targets.tensorrt.vectors import allowed, vectors
from tests import onnx_models


def convolution() -> object:
    """A convolution, a product and a bias, of 8 channels; input ``x`` (N, 8, 6, 6)."""
    draw = np.random.default_rng(4).standard_normal
    weights = {"w": (8, 8, 3, 3), "b": (8,), "v": (8, 4)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"], "head"),
    ]
    stored = [numpy_helper.from_array(draw(shape).astype(np.float32), name) for name, shape in weights.items()]
    return onnx_models.model(nodes, {"x": ["N", 8, 6, 6]}, {"y": ["N", 4]}, stored)


def exported(tmp_path: Path, proto: object, profile: str = "", **how: object) -> Path:
    tmp_path.mkdir(exist_ok=True)
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    options = {"tensorrt": {"profile": [profile]}} if profile else {}
    convertkit.export(source, "tensorrt", output=tmp_path / "out", target_options=options, **how)
    return tmp_path / "out"


def facts(package: Path) -> dict:
    return json.loads((package / "constraints.json").read_text())


def script(package: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_engine", package / "build_engine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT-RTX, whose builder needs no GPU, in the place of TensorRT."""
    rtx = pytest.importorskip("tensorrt_rtx")
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(**{**vars(rtx), "__version__": "11.4.0.106"}))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A TensorRT that builds ``b"engine"`` and remembers what it was told."""
    fake = MagicMock(__version__="10.16.1")
    builder, config = fake.Builder.return_value, fake.Builder.return_value.create_builder_config.return_value
    builder.build_serialized_network.return_value = b"engine"
    builder.create_network.return_value.num_inputs = 0
    fake.NetworkDefinitionCreationFlag.STRONGLY_TYPED = 1
    config.add_optimization_profile.return_value = 0
    config.get_timing_cache.return_value.serialize.return_value = b"timings"
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    return fake


def test_the_script_builds_an_engine(tmp_path: Path, real: None, capsys: pytest.CaptureFixture[str]) -> None:
    package = exported(tmp_path, onnx_models.mlp(), "N=1,8,32")
    assert script(package).main([]) == 0
    engine = (package / "model.engine").read_bytes()
    assert hashlib.sha256(engine).hexdigest() in capsys.readouterr().out
    other = tmp_path / "other.engine"
    assert script(package).main(["--engine", str(other), "--size", "N=64,64,64"]) == 0
    assert other.read_bytes() != engine, "sizes of the command line are the engine's"


def test_the_script_says_what_the_parser_says(tmp_path: Path, real: None, capsys: pytest.CaptureFixture[str]) -> None:
    package = exported(tmp_path, onnx_models.mlp(), "N=1,8,32")
    (package / "model.onnx").write_bytes(b"\x08\x08")
    told = facts(package)
    told["model"]["sha256"]["model.onnx"] = hashlib.sha256(b"\x08\x08").hexdigest()
    (package / "constraints.json").write_text(json.dumps(told))
    assert script(package).main([]) == 1
    assert "build_engine.py: " in capsys.readouterr().err
    assert not (package / "model.engine").exists()


def test_the_script_tells_tensorrt_what_it_is_asked_for(tmp_path: Path, recorded: MagicMock) -> None:
    package = exported(tmp_path, onnx_models.mlp(), "N=1,8,32")
    cache = tmp_path / "timing.cache"
    words = ["--version-compatible", "--hardware-compatible", "ampere+", "--no-tf32", "--timing-cache", str(cache)]
    assert script(package).main([*words, "--workspace-mib", "64", "--plugin", "mine.so"]) == 0
    builder = recorded.Builder.return_value
    config = builder.create_builder_config.return_value
    builder.create_network.assert_called_once_with(2)
    builder.create_optimization_profile.return_value.set_shape.assert_called_once_with("x", [1, 5], [8, 5], [32, 5])
    builder.get_plugin_registry.return_value.load_library.assert_called_once_with("mine.so")
    config.set_flag.assert_called_once_with(recorded.BuilderFlag.VERSION_COMPATIBLE)
    config.clear_flag.assert_called_once_with(recorded.BuilderFlag.TF32)
    config.set_memory_pool_limit.assert_called_once_with(recorded.MemoryPoolType.WORKSPACE, 64 << 20)
    assert config.hardware_compatibility_level is recorded.HardwareCompatibilityLevel.AMPERE_PLUS
    assert cache.read_bytes() == b"timings"
    assert script(package).main(["--timing-cache", str(cache)]) == 0
    assert [call.args for call in config.create_timing_cache.call_args_list] == [(b"",), (b"timings",)]
    assert (package / "model.engine").read_bytes() == b"engine"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "dimension N is dynamic: add --size N=MIN,OPT,MAX"),
        (["--size", "M=1,2,3"], "dynamic dimensions: N"),
        (["--size", "N=3,2,1"], "expected 1 <= MIN <= OPT <= MAX"),
    ],
)
def test_the_script_refuses_sizes_that_do_not_fit(
    tmp_path: Path, recorded: MagicMock, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    package = exported(tmp_path, onnx_models.mlp())
    assert script(package).main(words) == 2
    assert says in capsys.readouterr().err
    assert not recorded.Builder.called


def test_the_script_refuses_another_file_and_an_old_release(
    tmp_path: Path, recorded: MagicMock, capsys: pytest.CaptureFixture[str]
) -> None:
    package = exported(tmp_path, onnx_models.mlp(), "N=1,8,32")
    recorded.__version__ = "9.3.0"
    assert script(package).main([]) == 2
    assert "TensorRT 9.3.0 is here; the model needs 10.0 or later" in capsys.readouterr().err
    with (package / "model.onnx").open("ab") as stream:
        stream.write(b"\0")
    assert script(package).main([]) == 2
    assert "model.onnx is not the file of this package" in capsys.readouterr().err


def test_the_facts_are_the_model_s(tmp_path: Path) -> None:
    samples = np.random.default_rng(5).standard_normal((24, 8, 6, 6)).astype(np.float32)
    package = exported(tmp_path, convolution(), "N=1,8,32", int8=True, calib=samples)
    told = facts(package)
    digest = hashlib.sha256((package / "model.onnx").read_bytes()).hexdigest()
    assert told["model"]["sha256"] == {"model.onnx": digest}
    assert told["model"]["precisions"] == ["float32", "int8"]
    assert told["dimensions"] == {"N": [1, 8, 32]}
    assert told["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["N", 8, 6, 6]}]
    assert told["compute_capability"] == {"at_least": "7.5"}
    assert told["sparsity"]["weights"] == []
    stored = exported(tmp_path / "w8", convolution(), w8=True)
    assert facts(stored)["compute_capability"] == {"at_least": "8.0"}, "integers are stored, products are float"
    assert facts(stored)["dimensions"] == {"N": None}
    assert not (stored / "trtexec.txt").exists(), "nobody said for which sizes"
    assert "python build_engine.py --size N=MIN,OPT,MAX\n" in (stored / "README.md").read_text()


def test_newer_operators_need_a_newer_release(tmp_path: Path) -> None:
    scale = numpy_helper.from_array(np.array([0.5, 1, 2, 3], np.float32), "s")
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"])
    proto = onnx_models.model([node], {"x": ["N", 4]}, {"y": ["N", 4]}, [scale], opset=23)
    assert facts(exported(tmp_path, proto))["tensorrt"]["at_least"] == "10.15"


@pytest.mark.parametrize("precision", ["", "int8"])
def test_pruned_weights_have_sparse_kernels(tmp_path: Path, recorded: MagicMock, precision: str) -> None:
    how = {precision: True} if precision else {}
    samples = np.random.default_rng(5).standard_normal((24, 8, 6, 6)).astype(np.float32)
    package = exported(tmp_path, convolution(), "N=1,8,32", prune="2:4", calib=samples, **how)
    assert len(facts(package)["sparsity"]["weights"]) == 2
    assert "--sparsity=enable" in (package / "trtexec.txt").read_text()
    assert script(package).main([]) == 0
    config = recorded.Builder.return_value.create_builder_config.return_value
    config.set_flag.assert_called_once_with(recorded.BuilderFlag.SPARSE_WEIGHTS)


def test_sparse_are_two_of_four_along_the_channels_alone() -> None:
    block = np.array([[1, 0, 2, 0], [0, 3, 0, 4], [5, 6, 0, 0], [0, 0, 0, 7]], np.float32)
    assert is_sparse(block, 1)
    assert not is_sparse(np.array([[1, 2, 3, 0]], np.float32), 1)
    assert not is_sparse(np.tile([[1.0, 1, 0, 0]], (4, 1)), 0)
    assert not is_sparse(np.array([[1, 0, 2, 0, 0, 0]], np.float32), 1), "not in fours"
    assert is_sparse(np.moveaxis(block[..., None, None], 1, 0), 0)


def test_polygraphy_reads_the_vectors(tmp_path: Path) -> None:
    pytest.importorskip("polygraphy")
    from polygraphy.comparator import RunResults
    from polygraphy.json import load_json

    package = exported(tmp_path, onnx_models.mlp(), "N=2,4,6")
    inputs = load_json(str(package / "golden" / "inputs.json"))
    results = RunResults.load(str(package / "golden" / "outputs.json"))
    ((runner, outputs),) = results.items()
    assert runner == facts(package)["golden"]["computed_by"]
    assert len(inputs) == len(outputs) == facts(package)["golden"]["vectors"] == 3
    model = convertkit.load(package)
    for given, got in zip(inputs, outputs, strict=True):
        assert 2 <= len(given["x"]) <= 6, "sizes that the engine takes"
        np.testing.assert_allclose(got["y"], model.run(given)["y"], rtol=1e-5, atol=1e-6)


def compared(package: Path) -> subprocess.CompletedProcess[str]:
    """Polygraphy's verdict, with the line of the README but for the engine, which is here the model in ONNX Runtime."""
    page = (package / "README.md").read_text()
    line = page[page.index("polygraphy run") :].split("\n\n")[0].replace("\\\n", " ")
    words = line.replace("model.engine --trt", "model.onnx --onnxrt").split()[1:]
    return subprocess.run(
        [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())", *words],
        cwd=package,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_polygraphy_compares_with_the_vectors(tmp_path: Path) -> None:
    pytest.importorskip("polygraphy")
    package = exported(tmp_path, onnx_models.mlp())
    said = compared(package)
    assert said.returncode == 0, said.stdout + said.stderr
    other = exported(tmp_path / "other", onnx_models.mlp(seed=2))
    (package / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    assert compared(package).returncode != 0


def test_generated_divisors_are_other_than_0_and_the_user_s_are_kept(tmp_path: Path) -> None:
    text = "g (int64[64] a, int64[64] b) => (int64[64] y) { y = Div (a, b) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}'), tmp_path / "source.onnx")
    artifact = Artifact(tmp_path / "source.onnx", "onnx", *(interface(load_model(tmp_path / "source.onnx"))), "")
    with OnnxRunner(artifact) as runner:
        generated = vectors(artifact, runner, None, 0)
        assert generated
        for vector in generated:
            np.testing.assert_array_equal(vector.outputs["y"], vector.inputs["a"] // vector.inputs["b"])
        with pytest.raises(ToolError):
            vectors(artifact, runner, [{"a": np.arange(64), "b": np.zeros(64, np.int64)}], 0)
        (vector,) = vectors(artifact, runner, [{"a": np.arange(64), "b": np.full(64, 2)}], 0)
    np.testing.assert_array_equal(vector.outputs["y"], np.arange(64) // 2)


def test_an_output_may_differ_by_its_steps() -> None:
    found = [Vector({}, {"y": np.array([0.5, -4.0], np.float32), "k": np.array([7])})]
    assert allowed(TensorSpec("y", (2,), "float32", lsb=0.5), found) == 1.0, "a hundredth of 4, and twice 0.5"
    assert allowed(TensorSpec("k", (1,), "int64"), found) == 0.0


def test_what_rounding_changes_is_allowed_three_times() -> None:
    found = [Vector({}, {"y": np.array([0.5, -4.0], np.float32)})]
    spec = TensorSpec("y", (2,), "float32")
    assert allowed(spec, found, 0.01) == 0.04, "a hundredth of 4"
    assert allowed(spec, found, 0.3) == 0.9
    assert allowed(spec, found, 0.01, 0.03) == 0.12


def test_roundings_are_what_a_graph_without_them_differs_by(tmp_path: Path) -> None:
    """A sum and its hyperbolic tangent, each rounded; constants that bfloat16 holds."""
    constant = np.array([0.25, -0.5, 1.0, 3.0, 0.125], np.float32)
    nodes = [helper.make_node("Add", ["x", "k"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    stored = [numpy_helper.from_array(constant, "k")]
    proto = onnx_models.model(nodes, {"x": ["N", 5]}, {"y": ["N", 5]}, stored)
    path = exported(tmp_path, proto, bf16=True) / "model.onnx"
    artifact = Artifact(path, "onnx", *interface(load_model(path)), "")
    x = np.random.default_rng(6).normal(0, 1, (3, 5)).astype(np.float32)
    with OnnxRunner(artifact) as runner:
        rounded = runner.run({"x": x})["y"]
    with otherwise_rounded(artifact) as other:
        found = changed(artifact, other, Vector({"x": x}, {"y": rounded}))
    assert found["y"] == pytest.approx(np.abs(rounded - np.tanh(x + constant)).max(), abs=1e-6)
    assert found["y"] > 1e-3
