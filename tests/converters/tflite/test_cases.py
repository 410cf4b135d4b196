"""Real ``.tflite`` files: operator by operator, end to end, and broken on purpose."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import parse, read_model
from convertkit.converters.tflite.recurrent import METADATA
from convertkit.converters.tflite.source import TFLiteSource
from convertkit.errors import ConvertKitError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.runner import OnnxRunner
from convertkit.recipe import ExportOptions

pytestmark = pytest.mark.case

INTEGER = [
    "mlperf-ic/pretrainedResnet_quant",
    "mlperf-kws/reference_int8",
    "tflm/hello_world_int8",
    "tflm/micro_speech_quantized",
    "mnist/trained_lstm_int8",
]
FLOAT = ["mlperf-ic/pretrainedResnet", "tflm/hello_world_float", "mnist/trained_lstm", "dtln/model_1", "dtln/model_2"]
DYNAMIC_RANGE = ["dtln/model_quant_1", "dtln/model_quant_2", "mlperf-kws/reference_hybrid"]


def converted(path: Path, workdir: Path) -> tuple[TFLiteSource, OnnxRunner]:
    source = TFLiteSource(path, ExportOptions(str(path), timeout_s=120), workdir)
    return source, OnnxRunner(source.stage().run(source.artifact, workdir))


@pytest.mark.parametrize("name", INTEGER)
def test_every_integer_operator_is_within_one_step(cases: Path, name: str):
    from single_ops import departures

    for each in departures(cases / f"{name}.tflite"):
        assert each.size <= 1, each


@pytest.mark.parametrize("name", FLOAT)
def test_every_float_operator_agrees(cases: Path, name: str):
    from single_ops import departures

    for each in departures(cases / f"{name}.tflite"):
        assert each.size <= 1e-5, each


@pytest.mark.parametrize("name", DYNAMIC_RANGE)
def test_dynamic_range_is_within_the_kernels_own_rounding(cases: Path, tmp_path: Path, name: str):
    source, runner = converted(cases / f"{name}.tflite", tmp_path)
    rng = np.random.default_rng(0)
    feed = {spec.name: rng.standard_normal([s if isinstance(s, int) else 2 for s in spec.shape]).astype("f")
            for spec in source.artifact.inputs}  # fmt: skip
    with source.runner() as reference, runner:
        expected, got = reference.run(feed), runner.run(feed)
    for key, value in expected.items():
        noise = np.square(got[key] - value).sum() / np.square(value).sum()
        assert -10 * np.log10(noise) > 20  # 8-bit activations inside the kernels


def test_keyword_spotting_int8_keeps_its_accuracy(cases: Path, tmp_path: Path):
    data = np.load(cases / "mlperf-kws" / "kws01.npz")
    _, runner = converted(cases / "mlperf-kws" / "reference_int8.tflite", tmp_path)
    with runner:
        scores = runner.run({"input_1": data["mfcc_int8"].reshape(-1, 49, 10, 1)})["Identity"]
    assert abs((scores.argmax(-1) == data["label"]).mean() * 100 - 90.2) <= 0.1


@pytest.mark.parametrize(("name", "accuracy"), [("trained_lstm", 98.53), ("trained_lstm_int8", 98.49)])
def test_the_fused_lstm_keeps_its_accuracy(cases: Path, tmp_path: Path, name: str, accuracy: float):
    images, labels = mnist(cases, 2000 if name == "trained_lstm" else 1000)
    source, runner = converted(cases / "mnist" / f"{name}.tflite", tmp_path)
    integer = source.artifact.inputs[0].dtype == "int8"
    right = 0
    with source.runner() as reference, runner:
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            feed = {
                "fixed_input": (image.astype(np.int16) - 128).astype(np.int8) if integer else image / np.float32(255)
            }
            got = runner.run(feed)["sequential"]
            right += int(got.argmax() == label)
            if index < 20:  # states start afresh in every call
                expected = reference.run(feed)["sequential"]
                assert np.abs(got.astype("f") - expected.astype("f")).max() <= (3 if integer else 1e-5)
    assert right / len(labels) * 100 > accuracy - 1.5  # a part of the 10,000 images


@pytest.mark.nightly
def test_the_integer_lstm_on_all_images(cases: Path, tmp_path: Path):
    """At most a tenth of a point between LiteRT and ONNX."""
    images, labels = mnist(cases, 10_000)
    source, runner = converted(cases / "mnist" / "trained_lstm_int8.tflite", tmp_path)
    feeds = [{"fixed_input": (image.astype(np.int16) - 128).astype(np.int8)} for image in images]
    with source.runner() as reference, runner:
        before, after = (
            np.array([each.run(feed)["sequential"].argmax() for feed in feeds]) for each in (reference, runner)
        )
    assert abs((after == labels).mean() - (before == labels).mean()) <= 0.001


def test_an_lstm_that_overflows_its_kernel_is_refused(cases: Path, tmp_path: Path):
    data = bytearray((cases / "mnist" / "trained_lstm_int8.tflite").read_bytes())
    data[12423] = 123  # the exponent of a weight's scale, which becomes 2.5e36
    path = tmp_path / "huge.tflite"
    path.write_bytes(bytes(data))
    with pytest.raises(ConvertKitError, match="overflows"):
        converted(path, tmp_path)


def mnist(cases: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    packed = [cases / "mnist" / name for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")]
    images, labels = (gzip.decompress(file.read_bytes()) for file in packed)
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    return pixels[:count], np.frombuffer(labels, np.uint8, offset=8)[:count]


def test_the_lstm_says_what_only_its_kernel_knows(cases: Path):
    model = read_model(cases / "mnist" / "trained_lstm_int8.tflite")
    graph = canonicalize(to_onnx(model, model.signatures[0])).graph
    node = next(node for node in graph if METADATA in node.metadata_props)
    facts = node.metadata_props[METADATA]
    assert '"dtype": "int16"' in facts
    assert '"cell_clip": 10.0' in facts


def test_scales_and_zero_points_survive(cases: Path):
    model = read_model(cases / "mlperf-kws" / "reference_int8.tflite")
    graph = canonicalize(to_onnx(model, model.signatures[0])).graph
    held = {(float(n.inputs[1].const_value.numpy()), int(n.inputs[2].const_value.numpy()))
            for n in graph if n.op_type == "QuantizeLinear"}  # fmt: skip
    info = model.subgraphs[0]
    declared = {(float(t.quantization.scale[0]), int(t.quantization.zero_point[0])) for op in info.operators
                for t in [info.tensors[op.outputs[0]]] if t.quantization}  # fmt: skip
    assert held == declared


def mutants(data: bytes, count: int) -> list[bytes]:
    """Half truncated, half with one to four bits flipped; most of the flips in the structure, not the weights."""
    rng = np.random.default_rng(5)
    made = [data[: int(rng.integers(0, len(data)))] for _ in range(count)]
    for _ in range(count):
        flipped = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            flipped[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
        made.append(bytes(flipped))
    return made


def survives(data: bytes, workdir: Path) -> str:
    """Convert a broken file and, where that works, compare with what LiteRT makes of it."""
    path = workdir / "mutant.tflite"
    path.write_bytes(data)
    try:
        source, runner = converted(path, workdir)
        rng = np.random.default_rng(0)
        feed = {}
        for spec in source.artifact.inputs:
            shape = [size if isinstance(size, int) else 1 for size in spec.shape]
            kind = np.dtype(spec.dtype)
            values = rng.standard_normal(shape) if kind.kind == "f" else rng.integers(0, 100, shape)
            feed[spec.name] = values.astype(kind)
        with source.runner() as reference:
            expected = reference.run(feed)
        with runner:
            got = runner.run(feed)
    except ConvertKitError as error:
        return "Traceback" if "Traceback" in str(error) else "refused"
    for name, value in expected.items():
        if got[name].shape == value.shape and np.isfinite(value.astype(np.float64)).all():
            scale = max(float(np.abs(value.astype(np.float64)).max(initial=0)), 1e-6)
            apart = float(np.abs(got[name].astype(np.float64) - value.astype(np.float64)).max(initial=0))
            assert apart <= (2 if value.dtype.kind in "iu" else 1e-3 * scale), (name, apart)
    return "equal"


@pytest.mark.parametrize("name", ["tflm/hello_world_int8", "tflm/hello_world_float"])
def test_broken_files_are_refused_or_mean_what_they_say(cases: Path, tmp_path: Path, name: str):
    outcomes = [survives(data, tmp_path) for data in mutants((cases / f"{name}.tflite").read_bytes(), 5)]
    assert "refused" in outcomes
    assert set(outcomes) <= {"refused", "equal"}


def test_the_reader_alone_survives_hundreds_of_broken_files(cases: Path):
    """Truncated files are refused; a flipped bit may be one of a weight, and then the interface is as it was."""
    data = (cases / "mlperf-kws" / "reference_int8.tflite").read_bytes()
    whole = parse(data)
    expected = [len(value.shape) for value in to_onnx(whole, whole.signatures[0]).graph.inputs]
    outcomes = []
    for each in mutants(data, 60):
        try:
            model = parse(each)
            graph = to_onnx(model, model.signatures[0]).graph
        except ConvertKitError:
            outcomes.append(None)
        else:
            outcomes.append([len(value.shape) for value in graph.inputs])
    truncated, flipped = outcomes[:60], outcomes[60:]
    assert not any(truncated)
    assert flipped.count(expected) > 30
    assert all(ranks in (None, expected) for ranks in flipped)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
@pytest.mark.parametrize("name", ["mnist/trained_lstm_int8", "tflm/hello_world_int8", "mlperf-kws/reference_int8"])
def test_integer_files_are_proven_without_data(cases: Path, tmp_path: Path, name: str, target: str):
    """Generated integers must reach beyond the few that stand for indices, or saturated nets give one answer."""
    done = convertkit.export(cases / f"{name}.tflite", target=target, output=tmp_path / "out")
    assert done.report["passed"]
