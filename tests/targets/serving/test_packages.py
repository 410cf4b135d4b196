"""Packages for model servers: what lies in them, what runs out of them, what a server would answer, what is refused."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.errors import FeedError, SourceError
from convertkit.targets.serving import requests
from convertkit.targets.serving.archive import ArchiveRunner
from convertkit.targets.serving.bento import BentoRunner
from convertkit.targets.serving.inference_service import inference_service
from convertkit.targets.serving.naming import name_of
from convertkit.targets.serving.repository import RepositoryRunner
from convertkit.targets.serving.schema import read_config
from tests.command_line import here

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(0, 0.5, (5, 3)).astype(np.float32)
FEED = {"x": RNG.normal(0, 1, (2, 5)).astype(np.float32)}


def saved(path: Path, nodes, inputs, outputs) -> str:
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(WEIGHTS, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return str(path)


def tensor(name: str, *shape: int | str, kind: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("serving")


@pytest.fixture(scope="module")
def source(folder):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "head")]
    return saved(folder / "My Net_v2.onnx", nodes, [tensor("x", "N", 5)], [tensor("y", "N", 3)])


@pytest.fixture(scope="module")
def mixing(folder):
    """Each answer has the mean over all samples of the call in it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"], "head"),
        helper.make_node("ReduceMean", ["z"], ["m"], "mean", keepdims=1),
        helper.make_node("Sub", ["z", "m"], ["y"], "centre"),
    ]
    return saved(folder / "mixing.onnx", nodes, [tensor("x", "N", 5)], [tensor("y", "N", 3)])


def exported(source: str, target: str, folder: str = "", **options):
    output = Path(source).parent / f"{Path(source).stem}-{folder or target}"
    return convertkit.export(source, target, output=output, force=True, progress=False, **options)


@pytest.fixture(scope="module")
def triton(source):
    return exported(source, "triton")


@pytest.fixture(scope="module")
def torchserve(source):
    return exported(source, "torchserve")


@pytest.fixture(scope="module")
def bentoml(source):
    return exported(source, "bentoml")


def config_of(result, name="my-net-v2"):
    return read_config(result.path / "repository" / name / "config.pbtxt")


def test_a_triton_repository_says_what_the_model_takes(triton):
    config = config_of(triton)
    assert (config.name, config.backend, config.max_batch_size) == ("my-net-v2", "onnxruntime", 8)
    assert [(each.name, list(each.dims)) for each in (*config.input, *config.output)] == [("x", [5]), ("y", [3])]
    assert config.HasField("dynamic_batching")
    model = triton.path / "repository" / "my-net-v2"
    (warm,) = config.model_warmup
    raw = (model / "warmup" / warm.inputs[0].value.input_data_file).read_bytes()
    golden = requests.arrays(json.loads((triton.path / "golden" / "request.json").read_text())["inputs"])
    assert np.array_equal(np.frombuffer(raw, np.float32).reshape(1, 5), golden["x"])
    assert onnx.load(model / "1" / "model.onnx").graph.node


def test_a_golden_answer_is_the_models(triton, torchserve, bentoml):
    for package in (triton, torchserve, bentoml):
        asked, answered = (
            json.loads((package.path / "golden" / f"{name}.json").read_text()) for name in ("request", "response")
        )
        wanted = requests.arrays(asked["inputs"])["x"] @ WEIGHTS
        assert answered["model_name"] == "my-net-v2"
        assert np.allclose(requests.arrays(answered["outputs"])["y"], wanted, atol=1e-5)


def test_samples_that_mix_are_not_put_into_one_call(mixing):
    config = config_of(exported(mixing, "triton"), "mixing")
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert [list(each.dims) for each in config.input] == [[-1, 5]]
    assert [each.batch_size for each in config.model_warmup] == [1]
    said = here("export", mixing, "-t", "triton", "--triton-max-batch", "4", "-o", Path(mixing).parent / "asked")
    assert said.code == 1
    assert "output y of a sample depends on the other samples of the call" in said.complaint
    assert not (Path(mixing).parent / "asked").exists()


def test_samples_of_different_lengths_are_no_obstacle(folder):
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], "sum", keepdims=0)
    graph = helper.make_graph(
        [node], "g", [tensor("x", "N", "T")], [tensor("y", "N")], [numpy_helper.from_array(np.int64([1]), "axes")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "sum.onnx")
    samples = [{"x": np.arange(4, dtype=np.float32)[None]}, {"x": np.arange(7, dtype=np.float32)[None]}]
    config = config_of(exported(str(folder / "sum.onnx"), "triton", calib=samples), "sum")
    assert config.max_batch_size == 8


def test_a_tensor_without_sizes_is_reshaped(folder):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"], "head"),
        helper.make_node("ReduceSum", ["z"], ["y"], "sum", keepdims=0),
    ]
    source = saved(folder / "scalar.onnx", nodes, [tensor("x", 2, 5)], [tensor("y")])
    config = config_of(exported(source, "triton"), "scalar")
    (answer,) = config.output
    assert (list(answer.dims), answer.HasField("reshape"), list(answer.reshape.shape)) == ([1], True, [])


def test_options_reach_the_configuration(source):
    chosen = {"triton": {"name": "other", "max-batch": 3, "delay-us": 7, "instances": 2}}
    config = config_of(exported(source, "triton", "chosen", target_options=chosen), "other")
    assert (config.name, config.max_batch_size) == ("other", 3)
    assert config.dynamic_batching.max_queue_delay_microseconds == 7
    assert config.instance_group[0].count == 2


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("dims: 5", "dims: 6", "input x has the sizes"),
        ('name: "my-net-v2"', 'name: "other"', "names the model 'other'"),
        ("TYPE_FP32", "TYPE_FP64", "TYPE_FP64"),
        ('name: "y"', 'name: "logits"', "logits"),
        ("max_batch_size: 8", "max_batch_sizes: 8", "not a model configuration of ours"),
    ],
)
def test_a_wrong_configuration_is_seen(triton, before, after, complaint):
    file = triton.path / "repository" / "my-net-v2" / "config.pbtxt"
    kept = file.read_text()
    assert before in kept
    try:
        file.write_text(kept.replace(before, after))
        with pytest.raises((FeedError, SourceError), match=complaint), RepositoryRunner(triton.artifact) as runner:
            runner.run(FEED)
    finally:
        file.write_text(kept)


def test_what_was_verified_ran_out_of_the_package(triton, torchserve):
    """Another weight in the packaged file alone: the runner computes something else."""
    model = triton.path / "repository" / "my-net-v2" / "1" / "model.onnx"
    archive = torchserve.path / "model-store" / "my-net-v2.mar"
    for runner, result, file in ((RepositoryRunner, triton, model), (ArchiveRunner, torchserve, archive)):
        with runner(result.artifact) as opened:
            before = opened.run(FEED)["y"]
        assert np.allclose(before, FEED["x"] @ WEIGHTS, atol=1e-5)
        kept = file.read_bytes()
        other = kept.replace(WEIGHTS.tobytes(), (2 * WEIGHTS).tobytes())
        try:
            file.write_bytes(rewritten(archive, {}) if file == archive else other)
            with runner(result.artifact) as opened:
                assert np.allclose(opened.run(FEED)["y"], 2 * before, atol=1e-5)
        finally:
            file.write_bytes(kept)


def rewritten(archive: Path, members: dict[str, bytes]) -> bytes:
    """The bytes of the archive with other members, and weights twice as large."""
    out = archive.with_suffix(".zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = members.get(name, old.read(name))
            new.writestr(name, content.replace(WEIGHTS.tobytes(), (2 * WEIGHTS).tobytes()))
    made = out.read_bytes()
    out.unlink()
    return made


def test_another_handler_is_not_executed(torchserve):
    archive = torchserve.path / "model-store" / "my-net-v2.mar"
    kept = archive.read_bytes()
    try:
        archive.write_bytes(rewritten(archive, {"torchserve_handler.py": b"raise SystemExit('executed')"}))
        with pytest.raises(SourceError, match="a handler that is not ours"), ArchiveRunner(torchserve.artifact):
            pass
    finally:
        archive.write_bytes(kept)


def test_an_archive_says_what_torchserve_reads(torchserve):
    with zipfile.ZipFile(torchserve.path / "model-store" / "my-net-v2.mar") as archive:
        manifest = json.loads(archive.read("MAR-INF/MANIFEST.json"))
        names = set(archive.namelist())
    assert manifest["model"]["modelName"] == "my-net-v2"
    assert {manifest["model"][key] for key in ("serializedFile", "handler", "requirementsFile")} < names
    assert "load_models=my-net-v2.mar" in (torchserve.path / "config.properties").read_text()


class Bento:
    """What ``service.py`` takes from BentoML: two decorators, which give the class and the method as they are."""

    def __init__(self) -> None:
        self.routes: list[str] = []

    def service(self, name: str):
        return lambda service: service

    def api(self, route: str):
        self.routes.append(route)
        return lambda method: method


def test_a_bento_answers_the_golden_request(bentoml, monkeypatch):
    """The service itself, with nothing but the decorators in BentoML's place."""
    framework, folder = Bento(), bentoml.path / "service"
    monkeypatch.setitem(sys.modules, "bentoml", framework)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "onnx_model", raising=False)
    monkeypatch.syspath_prepend(folder)
    spec = importlib.util.spec_from_file_location("service", folder / "service.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asked, answered = (
        json.loads((bentoml.path / "golden" / f"{name}.json").read_text()) for name in ("request", "response")
    )
    assert module.Model().infer(asked["inputs"]) == answered
    assert framework.routes == ["/v2/models/my-net-v2/infer"]
    told = yaml.safe_load((folder / "bentofile.yaml").read_text())
    assert told["service"] == "service:Model"
    assert "onnxruntime" in told["python"]["packages"]


def test_python_leaves_nothing_in_a_package(source, tmp_path, monkeypatch):
    """The bytecode of the handler that is asked here was delivered with the package, and no two were the same."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    found = convertkit.export(source, "bentoml", output=tmp_path / "package", progress=False)
    assert (found.path / "service" / "onnx_model.py").is_file()
    assert not list(found.path.rglob("*.pyc"))


def test_another_service_is_not_executed(bentoml):
    handler = bentoml.path / "service" / "onnx_model.py"
    kept = handler.read_bytes()
    try:
        handler.write_bytes(b"raise SystemExit('executed')")
        with pytest.raises(SourceError, match="a handler that is not ours"), BentoRunner(bentoml.artifact):
            pass
    finally:
        handler.write_bytes(kept)


def test_kserve_deploys_the_repository(source):
    result = exported(source, "kserve", target_options={"kserve": {"storage-uri": "s3://bucket/models", "gpu": True}})
    resource = yaml.safe_load((result.path / "inferenceservice.yaml").read_text())
    assert (resource["apiVersion"], resource["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = resource["spec"]["predictor"]["model"]
    assert (model["modelFormat"]["name"], model["protocolVersion"]) == ("triton", "v2")
    assert (model["storageUri"], model["resources"]["limits"]["nvidia.com/gpu"]) == ("s3://bucket/models", "1")
    assert resource["metadata"]["name"] == config_of(result).name


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", ["net", "2net", "9" * 62 + "a"])
def test_kserve_takes_the_resource(name, gpu):
    """The schema is the part of the CRD that we use (bench/kserve_schema.py); names are KServe's ``IsvcNameFmt``."""
    resource = yaml.safe_load(inference_service(name, f"pvc://models/{name}", 1, 3, gpu=gpu))
    jsonschema.validate(resource, json.loads(Path(__file__).with_name("inferenceservice.schema.json").read_text()))
    service = resource["metadata"]["name"]
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", service)
    assert len(service) <= 63


def test_two_runs_give_the_same_bytes(source, triton, torchserve, bentoml):
    for target, package in (("triton", triton), ("torchserve", torchserve), ("bentoml", bentoml)):
        reports = ("report.json", "report.html", "manifest.json")
        files = [file for file in package.path.rglob("*") if file.is_file() and file.name not in reports]
        before = {file: file.read_bytes() for file in files}
        assert len(before) > 5
        exported(source, target)
        assert {file: file.read_bytes() for file in files} == before


def test_a_package_is_asked_for_beside_a_target(source, folder):
    said = here("export", source, "-t", "onnxruntime", "--package", "triton", "-o", folder / "asked")
    assert said.code == 0
    assert (folder / "asked" / "repository" / "my-net-v2" / "config.pbtxt").is_file()
    words = ("-t", "tensorrt", "--package", "triton", "--triton-tensorrt-backend", "onnxruntime")
    tensorrt = here("export", source, *words, "-o", folder / "tensorrt")
    assert tensorrt.code == 0
    config = read_config(folder / "tensorrt" / "repository" / "my-net-v2" / "config.pbtxt")
    assert config.optimization.execution_accelerators.gpu_execution_accelerator[0].name == "tensorrt"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("-t", "tflite", "--package", "triton"), "does not take what --target tflite delivers; it takes --target"),
        (("--package", "tritn"), "unknown target 'tritn'"),
        (("-t", "onnxruntime", "--package", "tritn"), "no such package, did you mean 'triton'"),
        (("-t", "triton", "--triton-max-batch", "many"), "expected a whole number"),
        (("-t", "triton", "--triton-instances", "0"), "expected at least 1"),
        (("-t", "triton", "--triton-name", "My Net"), "lower-case letters, digits and dashes"),
    ],
)
def test_a_wrong_request_is_one_sentence(source, folder, words, complaint):
    said = here("export", source, *words, "-o", folder / "wrong")
    assert said.code == 2
    assert complaint in said.complaint
    assert not (folder / "wrong").exists()


def test_every_element_type_travels_through_json():
    for dtype in ("float32", "float64", "int64", "uint64", "int8", "bool"):
        value = np.array([[0, 1, 1]], dtype) if dtype == "bool" else np.array([[3, 0, 100]], dtype)
        spec = TensorSpec("x", (1, 3), dtype)
        body = json.loads(requests.text(requests.request([spec], {"x": value})))
        (found,) = requests.arrays(body["inputs"]).values()
        assert (found.dtype, found.tolist()) == (value.dtype, value.tolist())
    awkward = np.array([1e-45, np.pi, 3.4028235e38, -0.0, np.inf, np.nan], np.float32)
    spec = TensorSpec("x", (6,), "float32")
    (found,) = requests.arrays(json.loads(requests.text(requests.request([spec], {"x": awkward})))["inputs"]).values()
    assert found.tobytes() == awkward.tobytes()


def test_names_are_made_of_sources():
    assert name_of("models/Model_v2.PT") == "model-v2"
    assert name_of("pkg.mod:Net") == "net"
    assert name_of("…") == "model"
