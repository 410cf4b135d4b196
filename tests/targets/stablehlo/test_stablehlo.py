"""Portable artifacts of StableHLO: what they compute, the same bytes, who reads them, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from jaxlib.mlir.dialects import stablehlo
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit import plugins
from convertkit.errors import FeedError, MissingFramework, ToolError, Unsupported
from convertkit.targets.stablehlo.compat import context
from convertkit.targets.stablehlo.lowering import VERSION, _portable
from convertkit.targets.stablehlo.runner import StableHloRunner
from convertkit.targets.stablehlo.running import RunningService
from tests.command_line import check_refusal, here

WEIGHTS = np.random.default_rng(0).normal(0, 0.4, (6, 3, 3, 3)).astype(np.float32)
FEED = {"x": np.random.default_rng(1).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
OPSET = [helper.make_opsetid("", 21)]


def _saved(path: Path, nodes: list, ins: dict, outs: dict, constants: dict) -> Path:
    ports = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in each.items()]
        for each in (ins, outs)
    ]
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", *ports, stored), opset_imports=OPSET, ir_version=10), path
    )
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "stem", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["y"], "flatten"),
        helper.make_node("Cast", ["y"], ["whole"], "whole", to=TensorProto.INT64),
    ]
    ins = {"x": (TensorProto.FLOAT, ["N", 3, 8, 8])}
    outs = {"y": (TensorProto.FLOAT, ["N", 6]), "whole": (TensorProto.INT64, ["N", 6])}
    return _saved(tmp_path_factory.mktemp("stablehlo") / "net.onnx", nodes, ins, outs, {"w": WEIGHTS})


@pytest.fixture(scope="module")
def made(source):
    return convertkit.export(str(source), "stablehlo", output=source.parent / "made", progress=False)


def test_what_is_delivered_is_executed_by_xla(made):
    assert (made.artifact.path.name, made.artifact.format) == ("model.mlirbc", "stablehlo")
    found = made.run(FEED)
    padded = np.pad(FEED["x"], [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    conv = np.einsum("nchwij,ocij->nohw", windows[:, :, ::2, ::2], WEIGHTS)
    wanted = np.maximum(conv, 0).mean((2, 3))
    assert np.allclose(found["y"], wanted, atol=1e-5)
    assert found["whole"].dtype == np.int64
    assert (found["whole"] == wanted.astype(np.int64)).all()
    with StableHloRunner(made.artifact) as runner:
        assert runner.runtime.startswith("XLA of jaxlib")
        runner.invocation(FEED)()
        with pytest.raises(FeedError, match="the artifact"):
            runner.run({"x": np.zeros((2, 3, 8, 8), np.float32)})


def test_a_call_ends_when_its_results_are_there(tmp_path):
    """XLA answers before it is done: what is timed would be the asking alone."""
    kind = "tensor<768x768xf32>"
    lines = [f"%{i + 1} = stablehlo.dot %{i}, %0 : ({kind}, {kind}) -> {kind}" for i in range(4)]
    body = "\n".join([*lines, f"return %4 : {kind}"])
    text = f"func.func @main(%0: {kind}) -> {kind} {{\n{body}\n}}"
    path = tmp_path / "model.mlirbc"
    path.write_bytes(stablehlo.serialize_portable_artifact_str(text, VERSION))
    service = RunningService()
    service.load({"artifact": str(path)}, {})
    service.place({"inputs": ["x"]}, {"x": np.eye(768, dtype=np.float32)})
    assert all(each.is_ready() for each in service._outputs())


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "bytes"])
def test_stored_truths_are_read(tmp_path, packed):
    """A causal mask of 12 by 12 was refused: TensorFlow packs eight into a byte."""
    mask, kind = np.tri(12, dtype=np.bool_), "tensor<12x12xi1>"
    data = np.packbits(mask, bitorder="little") if packed else mask
    lines = [f'%0 = stablehlo.constant dense<"0x{data.tobytes().hex().upper()}"> : {kind}']
    lines += [f"%1 = stablehlo.and %x, %0 : {kind}", f"return %1 : {kind}"]
    body = "\n".join(lines)
    path = tmp_path / "model.mlirbc"
    path.write_bytes(_portable(f"func.func @main(%x: {kind}) -> {kind} {{\n{body}\n}}", "HIGHEST")[0])
    service = RunningService()
    service.load({"artifact": str(path)}, {})
    found = service.run({"inputs": ["x"]}, {"x": np.ones((12, 12), np.bool_)}).arrays["0"]
    assert np.array_equal(found, mask)


def test_the_artifact_is_portable_and_tells_nothing_of_this_machine(made):
    written = made.artifact.path.read_bytes()
    assert written.startswith(b"ML\xefR")
    assert b"StableHLO_v1.0.0" in written
    assert b"/" + b"site-packages" not in written
    assert WEIGHTS.transpose(2, 3, 1, 0).tobytes() in written
    (step,) = [each for each in made.report["steps"] if each["stage"] == "stablehlo"]
    assert step["diagnosis"]["operators"]["stablehlo.convolution"] == 1
    assert {name.partition(".")[0] for name in step["diagnosis"]["operators"]} == {"stablehlo"}
    assert min(step["diagnosis"]["operators"].values()) > 0
    assert "| 0 | x | 1 × 8 × 8 × 3 | float32 |" in (made.path / "README.md").read_text()


@pytest.mark.parametrize("precision", ["highest", "default"])
def test_products_keep_float32_on_every_device_unless_asked(source, made, tmp_path, precision):
    """A GPU computes products of StableHLO's default precision in TF32, a TPU in bfloat16."""
    found = made
    if precision == "default":
        asked = {"stablehlo": {"precision": precision}}
        found = convertkit.export(source, "stablehlo", output=tmp_path / "d", target_options=asked, progress=False)
    with context() as known:
        text = str(stablehlo.deserialize_portable_artifact(known, found.artifact.path.read_bytes()))
    (product,) = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    assert ("precision HIGHEST>, #stablehlo<precision HIGHEST>" in product) == (precision == "highest")
    assert ("HIGHEST" in text) == (precision == "highest")
    assert f"`{precision.upper()}`" in (found.path / "README.md").read_text()


def test_two_runs_write_the_same_bytes(source, made):
    again = convertkit.export(str(source), "stablehlo", output=source.parent / "again", progress=False)
    assert again.artifact.sha256 == made.artifact.sha256


def test_what_is_executed_is_the_file(made, tmp_path):
    """Other weights in the file alone: another result."""
    kept, weights = made.artifact.path.read_bytes(), WEIGHTS.transpose(2, 3, 1, 0)
    assert kept.count(weights.tobytes()) == 1
    before = made.run(FEED)["y"]
    try:
        made.artifact.path.write_bytes(kept.replace(weights.tobytes(), (2 * weights).tobytes()))
        with StableHloRunner(made.artifact) as runner:
            assert np.allclose(runner.run(FEED)["y"], 2 * before, atol=1e-5)
        made.artifact.path.write_bytes(b"MLIR")
        with (
            pytest.raises(ToolError, match=r"model\.mlirbc is not a StableHLO artifact"),
            StableHloRunner(made.artifact),
        ):
            pass
        made.artifact.path.write_bytes(kept[:200])
        with pytest.raises(ToolError, match=r"XLA does not load model\.mlirbc"), StableHloRunner(made.artifact):
            pass
    finally:
        made.artifact.path.write_bytes(kept)


def test_it_is_a_source_again(made, tmp_path):
    back = convertkit.export(made.artifact.path, "onnxruntime", output=tmp_path / "back", progress=False)
    (found, _) = back.run({next(iter(back.artifact.inputs)).name: FEED["x"].transpose(0, 2, 3, 1)}).values()
    assert np.allclose(found, made.run(FEED)["y"], atol=1e-5)


def test_sizes_that_data_decides_are_refused(tmp_path):
    nodes = [helper.make_node("NonZero", ["x"], ["y"], "where")]
    ins, outs = {"x": (TensorProto.FLOAT, [2, 3])}, {"y": (TensorProto.INT64, [2, "M"])}
    path = _saved(tmp_path / "nonzero.onnx", nodes, ins, outs, {})
    with pytest.raises(Unsupported) as refusal:
        convertkit.export(path, "stablehlo", output=tmp_path / "out", progress=False)
    assert ": its size depends on the data, and a StableHLO artifact has fixed sizes" in str(refusal.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--int8", "--fp16", "--w8"])
def test_it_is_float_alone(source, tmp_path, flag):
    said = here("export", str(source), "-t", "stablehlo", flag, "-o", tmp_path / "out")
    check_refusal(said, 2, f"target stablehlo does not deliver {flag.removeprefix('--')}")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("lacking", ["tensorflow", "jaxlib"])
def test_without_a_framework_the_extra_is_named(source, tmp_path, monkeypatch, lacking):
    monkeypatch.setattr("convertkit.targets.stablehlo.find_spec", lambda name: None if name == lacking else object())
    with pytest.raises(MissingFramework, match=rf"{lacking} is not installed.*convertkit-ml\[stablehlo\]"):
        convertkit.export(str(source), "stablehlo", output=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_it_is_a_target():
    assert plugins.target("stablehlo").static_because
