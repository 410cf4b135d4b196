"""Weights of 4 bits go by the cost table: what they would make slow gets 8; the result says what is for size only."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import convertkit
from convertkit.artifact import Array
from convertkit.errors import UsageError
from convertkit.onnx.canonical import canonicalize
from convertkit.options.flags import options_from
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.narrow import pace
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.search.weights import first_wide
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite import TfliteTarget
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of, small_cnn

RNG = np.random.default_rng(0)


def chain(*layers: dict[str, object], side: int = 14, channels: int = 16) -> onnx.ModelProto:
    """Convolutions one behind the other, from ``channels`` on; ``layers`` say window, filters and attributes."""
    nodes, constants, value, deep = [], dict[str, Array](), "x", channels
    for index, layer in enumerate(layers):
        attributes = dict(layer)
        window, filters = int(str(attributes.pop("window", 3))), int(str(attributes.pop("filters", deep)))
        kind = str(attributes.pop("kind", "Conv"))
        group = int(str(attributes.get("group", 1)))
        size = (deep, filters) if kind == "ConvTranspose" else (filters, deep // group)
        constants[f"w{index}"] = RNG.normal(0, 0.1, (*size, window, window)).astype(np.float32)
        pads = {} if kind == "ConvTranspose" or "strides" in attributes else {"pads": [window // 2] * 4}
        nodes.append(helper.make_node(kind, [value, f"w{index}"], [f"y{index}"], f"n{index}", **pads, **attributes))
        value, deep = f"y{index}", filters
    return model_of(nodes, constants, {"x": [1, channels, side, side]}, {value: None})


def dense(*sizes: int, rows: int = 1) -> onnx.ModelProto:
    """Dense layers one behind the other."""
    pairs = list(itertools.pairwise(sizes))
    constants = {f"w{i}": RNG.normal(0, 0.1, (b, a)).astype(np.float32) for i, (a, b) in enumerate(pairs)}
    nodes = [
        helper.make_node("Gemm", [f"y{i - 1}" if i else "x", f"w{i}"], [f"y{i}"], f"n{i}", transB=1)
        for i in range(len(pairs))
    ]
    return model_of(nodes, constants, {"x": [rows, sizes[0]]}, {f"y{len(pairs) - 1}": [rows, sizes[-1]]})


def units_of(model: onnx.ModelProto, precision: str = "w4") -> tuple[ir.Graph, tuple[Unit, ...], QuantProfile]:
    prepared = canonicalize(ir.from_proto(model))
    prepare(prepared)
    rules = profile(ExportOptions(source="x", precision=precision))  # type: ignore[arg-type]
    return prepared.graph, find_units(prepared.graph, rules), rules


@pytest.mark.parametrize(
    ("model", "wide"),
    [
        (chain({"filters": 16}, {"filters": 16}, side=28), {"n0", "n1"}),
        (chain({"filters": 8}, channels=8), {"n0"}),
        (chain({"kind": "ConvTranspose", "window": 2, "filters": 32, "strides": [2, 2]}, channels=32), {"n0"}),
        (chain({"window": 1, "filters": 256}, {"group": 256}, channels=256), {"n1"}),
        (dense(32, 32, 32, rows=16), {"n0", "n1"}),
        (dense(784, 128, 64, 10), {"n1", "n2"}),  # the smallest, as far as bytes go
        (dense(512, 512), set()),
    ],
    ids=["convolutions", "few channels", "transposed", "depthwise", "small rows", "dense", "large dense"],
)
def test_what_four_bits_make_slow_gets_eight(model: onnx.ModelProto, wide: set[str]) -> None:
    assert first_wide(*units_of(model)) == wide
    assert first_wide(*units_of(model), size_first=True) == set()


def test_layers_that_are_most_of_the_file_stay_small() -> None:
    """Their bytes are a greater share of the file than the time that they cost is of float32's."""
    model = chain({"filters": 256}, {"filters": 256}, {"window": 1, "filters": 16}, side=7, channels=256)
    graph, units, rules = units_of(model)
    wide = first_wide(graph, units, rules)
    paced = pace(units, rules)
    assert "n1" not in wide
    assert paced.units["n1"][2] > paced.units["n1"][0]  # slower than in float32 all the same
    assert paced.share(wide, ()) < 1.5


@pytest.mark.parametrize(
    "model",
    [chain({"filters": 32}, {"window": 5}, {"group": 32}, {"window": 1}), dense(64, 64, 2048), dense(16, 16, rows=8)],
    ids=["convolutions", "dense", "small"],
)
def test_eight_bits_are_never_dearer_than_float(model: onnx.ModelProto) -> None:
    _, units, rules = units_of(model)
    for full, eight, _ in pace(units, rules).units.values():
        assert eight <= full


def test_what_the_quantizer_prices_is_what_the_compiler_writes(quantized) -> None:
    """A layer counts as one of integers on the fly exactly where the compiler gives its kernel integer weights."""
    layers = {"filters": 32}, {"group": 32}, {"window": 1, "filters": 256}, {"window": 1}, {"filters": 64}
    model = chain(*layers, side=28)
    _, units, rules = units_of(model, "w8")
    faster = [name for name, (full, eight, _) in pace(units, rules).units.items() if eight < full]
    made = compile_model(ir.load(quantized(model, None, "w8").after.path), Options())
    kernels = [op for op in made.program.subgraphs[0].operations if op.code in ("CONV_2D", "DEPTHWISE_CONV_2D")]
    assert [f"n{i}" for i, op in enumerate(kernels) if op.inputs[1].dtype == "int8"] == faster


@pytest.mark.parametrize(
    ("precision", "target", "ends"),
    [
        ("fp16", "tflite", "; for size only: no faster than float32"),
        ("fp16", "onnxruntime", "; for size only: no faster than float32"),
        ("w8", "tflite", "; for size only: no faster than float32"),
        ("w4", "tflite", "; for size only: no faster than float32"),
        ("w4", "onnxruntime", "activations stay float32"),  # it may multiply a matrix with integers
    ],
)
def test_the_result_says_what_is_for_size_only(precision: str, target: str, ends: str, tmp_path: Path) -> None:
    onnx.save(small_cnn(), tmp_path / "cnn.onnx")
    choice = {precision: True}
    result = convertkit.export(tmp_path / "cnn.onnx", target, output=tmp_path / "out", **choice)  # type: ignore[arg-type]
    assert result.report["effective"]["sentence"].endswith(ends)


def test_what_is_faster_is_not_for_size_only(tmp_path: Path) -> None:
    onnx.save(dense(512, 512, 512), tmp_path / "dense.onnx")
    result = convertkit.export(tmp_path / "dense.onnx", "tflite", w4=True, output=tmp_path / "out")
    told = result.report["effective"]
    assert (told["for_size_only"], told["effective"]) == (False, "w4")
    assert told["time_share"] < 0.3
    assert told["sentence"].endswith("activations stay float32")


def test_what_is_slower_says_how_much(tmp_path: Path) -> None:
    onnx.save(dense(16, 32, 16, 4), tmp_path / "small.onnx")
    told = convertkit.export(tmp_path / "small.onnx", "tflite", w4=True, output=tmp_path / "out").report["effective"]
    assert told["for_size_only"]
    assert told["time_share"] > 1.02
    assert told["sentence"].endswith(
        f"; for size only: {told['time_share']:.2f} times float32's time by the cost table"
    )


def test_size_first_keeps_four_bits_in_every_layer(tmp_path: Path) -> None:
    """Convolutions that no fast kernel takes, and the smallest layers, too."""
    onnx.save(chain({"filters": 32}, {"filters": 8}, {"filters": 32}), tmp_path / "model.onnx")
    made = {
        size_first: convertkit.export(
            tmp_path / "model.onnx", "tflite", w4=True, size_first=size_first, output=tmp_path / str(size_first)
        )
        for size_first in (False, True)
    }
    stored = {
        size_first: [each.weight_bytes for each in TfliteTarget().operators(result.artifact) if each.macs]
        for size_first, result in made.items()
    }
    weights = np.array([32 * 16 * 9, 8 * 32 * 9, 32 * 8 * 9])
    biases = np.array(stored[True]) - weights / 2
    assert all(biases <= 4 * 32)
    assert all(np.array(stored[False]) >= weights)
    assert made[True].artifact.path.stat().st_size < made[False].artifact.path.stat().st_size


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"w8": True}, "--size-first goes with --w4"),
        ({}, "--size-first goes with --w4"),
        ({"w4": True, "accept_loss": True, "calib": "c.npz"}, "--accept-loss adds nothing"),
    ],
)
def test_size_first_is_for_four_bits(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        options_from({"source": "m.onnx", "target": "tflite", "size_first": True, **given})
