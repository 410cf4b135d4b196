"""Triton's backends: what lies in the repository for each, and that what is verified runs out of it."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.targets.serving import requests
from convertkit.targets.serving.repository import RepositoryRunner, packaged_model
from convertkit.targets.serving.schema import read_config
from tests import onnx_models

FEED = {"x": np.random.default_rng(0).normal(0, 1, (2, 5)).astype(np.float32)}
ACCEPTED = {"accept-bfloat16": True}


def exported(tmp_path: Path, target: str, **how: object) -> convertkit.ExportResult:
    source = onnx_models.write(tmp_path, onnx_models.mlp(), "net.onnx")
    return convertkit.export(source, target, output=tmp_path / "out", progress=False, **how)


def config_of(made: convertkit.ExportResult):
    return read_config(made.path / "repository" / "net" / "config.pbtxt")


def files(made: convertkit.ExportResult) -> set[str]:
    model = made.path / "repository" / "net"
    return {str(each.relative_to(model)) for each in model.rglob("*") if each.is_file()}


def agrees(made: convertkit.ExportResult, within: float) -> None:
    """What runs out of the repository, and what the golden response says, are the source's numbers."""
    weights = {each.name: numpy_helper.to_array(each) for each in onnx_models.mlp().graph.initializer}

    def wanted(x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]

    with RepositoryRunner(made.artifact) as runner:
        got = runner.run(FEED)["y"]
    np.testing.assert_allclose(got, wanted(FEED["x"]), atol=within * np.abs(got).max())
    asked, answered = (
        json.loads((made.path / "golden" / f"{name}.json").read_text()) for name in ("request", "response")
    )
    given = requests.arrays(asked["inputs"])["x"]
    np.testing.assert_allclose(requests.arrays(answered["outputs"])["y"], wanted(given), atol=1e-5)


def test_a_plan_is_built_from_the_package(tmp_path: Path) -> None:
    made = exported(tmp_path, "triton-tensorrt")
    config = config_of(made)
    assert (config.backend, config.platform, config.max_batch_size) == ("tensorrt", "", 8)
    assert config.instance_group[0].kind == 1, "KIND_GPU"
    found = files(made)
    assert {"tensorrt/model.onnx", "tensorrt/build_engine.py", "tensorrt/constraints.json"} <= found
    assert not any(name.startswith("1/") for name in found), "the plan is not there yet"
    page = (made.path / "README.md").read_text()
    built = next(line for line in page.splitlines() if "build_engine.py --engine" in line)
    assert shlex.split(built)[1:] == [
        "repository/net/tensorrt/build_engine.py",
        *("--engine", "repository/net/1/model.plan", "--size", "N=1,8,8"),
    ]
    facts = json.loads((made.path / "repository" / "net" / "tensorrt" / "constraints.json").read_text())
    assert list(facts["dimensions"]) == ["N"]
    agrees(made, 1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_plans_have_tensorrts_own_precisions(tmp_path: Path, precision: str) -> None:
    samples = np.random.default_rng(1).normal(0, 1, (24, 5)).astype(np.float32)
    made = exported(tmp_path, "triton-tensorrt", calib=samples, **{precision: True})
    kinds = {"bf16": onnx.TensorProto.BFLOAT16, "fp8": onnx.TensorProto.FLOAT8E4M3FN}
    stored = onnx.load(packaged_model(made.artifact.path)).graph.initializer
    assert kinds[precision] in {each.data_type for each in stored}


def test_a_size_beside_the_batch_is_the_user_s(tmp_path: Path) -> None:
    text = "g (float[N,T] x) => (float[N,T] y) { y = Relu (x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}'), tmp_path / "net.onnx")
    options = {"triton-tensorrt": {"max-batch": 3}}
    made = convertkit.export(
        tmp_path / "net.onnx", "triton-tensorrt", output=tmp_path / "out", target_options=options, progress=False
    )
    assert "--size N=1,3,3 --size T=MIN,OPT,MAX" in (made.path / "README.md").read_text()
    assert list(config_of(made).input[0].dims) == [-1]
    options["tensorrt"] = {"profile": ["N=1,8,32", "T=1,64,128"]}
    made = convertkit.export(
        tmp_path / "net.onnx", "triton-tensorrt", output=tmp_path / "known", target_options=options, progress=False
    )
    built = next(line for line in (made.path / "README.md").read_text().splitlines() if "--engine" in line)
    assert built.endswith("model.plan --size N=1,3,3"), "the package has the sizes of T"


@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
def test_an_ir_runs_as_the_backend_runs_it(tmp_path: Path) -> None:
    made = exported(tmp_path, "triton-openvino", target_options={"triton-openvino": ACCEPTED})
    config = config_of(made)
    assert (config.backend, config.max_batch_size, config.instance_group[0].kind) == ("openvino", 0, 2)
    assert list(config.input[0].dims) == [-1, 5]
    assert {"1/model.xml", "1/model.bin"} <= files(made)
    assert made.report["steps"][-1]["artifact"]["runtime"].endswith("in bfloat16 where the CPU has it")
    assert "would fill each call" in (made.path / "README.md").read_text()
    agrees(made, 2e-2)


@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
def test_an_ir_takes_whole_calls_where_it_is_asked_to(tmp_path: Path) -> None:
    chosen = {"triton-openvino": {**ACCEPTED, "max-batch": 4}}
    config = config_of(exported(tmp_path, "triton-openvino", target_options=chosen))
    assert config.max_batch_size == 4
    assert {each.key: each.value.string_value for each in config.parameters} == {"ENABLE_BATCH_PADDING": "YES"}


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_a_saved_model_runs_out_of_the_repository(tmp_path: Path) -> None:
    made = exported(tmp_path, "triton-tf-serving")
    config = config_of(made)
    assert (config.backend, config.platform, config.max_batch_size) == ("", "tensorflow_savedmodel", 8)
    assert "1/model.savedmodel/saved_model.pb" in files(made)
    assert not any("tf_serving_warmup" in name for name in files(made))
    assert (made.path / "Containerfile").read_text().startswith("FROM nvcr.io/nvidia/tritonserver:25.02-py3\n")
    agrees(made, 1e-5)
