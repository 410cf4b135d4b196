"""What cost tables make of single operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.costs.loops import TOGETHER, loops
from convertkit.targets.tflite.devices import DEVICES
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.inspection import placed_operators
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.tensor import QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model
from tests.targets.tflite.compiled import compiled


def test_a_shape_is_estimated(tmp_path: Path) -> None:
    """What asks a tensor for its sizes reads none of its numbers."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[n,m,6] x) => (float[k] y)
        <int64[1] one = {-1}> { r = Relu(x)  s = Shape<end=1>(r)  t = Concat<axis=0>(one, s)  u = Reshape(r, t)
        v = Transpose(u)  y = Reshape(v, one) }""")
    assert case.operators["SHAPE"] == 1
    case.compiled.write(tmp_path / "m.tflite")
    (found,) = estimates(tmp_path / "m.tflite", ["arm64-a76"])
    assert {node.ms for node in found.nodes if node.kind == "SHAPE"} == {0.0}
    assert found.ms > 0


def written(path: Path, shape: tuple[int, ...], step: Callable[[Builder, Tensor], Tensor]) -> Path:
    """A file of one operator between floats."""
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    x = Tensor("x", shape, "float32")
    subgraph.inputs = [x]
    y = step(Builder(program, subgraph), x)
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def ms(path: Path) -> float:
    return estimates(path, ["arm64-a76"])[0].ms


def test_a_slice_takes_what_it_reads(tmp_path: Path) -> None:
    """However much there is beside it."""
    few, many = (
        ms(written(tmp_path / "m.tflite", (rows, 1, 64), lambda b, x: b.slice(x, (0, 0, 0), (1, 1, 64))))
        for rows in (2, 500)
    )
    assert few == many > 0


def test_a_depthwise_convolution_of_one_channel_is_a_convolution(tmp_path: Path) -> None:
    """XNNPACK runs it by the same kernel; of several channels it has another one, which is slower here."""
    weight = np.random.default_rng(0).normal(size=(8, 10, 8, 1)).astype(np.float32)

    def convolution(b: Builder, x: Tensor) -> Tensor:
        return b.conv_2d(x, b.constant(weight), b.constant(np.zeros(8, np.float32)), strides=(2, 2), padding="SAME")

    def depthwise(b: Builder, x: Tensor) -> Tensor:
        turned = np.ascontiguousarray(np.tile(weight.transpose(3, 1, 2, 0), (1, 1, 1, x.shape[3])))
        zeros = np.zeros(8 * x.shape[3], np.float32)
        return b.depthwise_conv_2d(x, b.constant(turned), b.constant(zeros), strides=(2, 2), padding="SAME")

    plain = ms(written(tmp_path / "plain.tflite", (1, 49, 40, 1), convolution))
    assert ms(written(tmp_path / "one.tflite", (1, 49, 40, 1), depthwise)) == pytest.approx(plain, rel=1e-9)
    assert ms(written(tmp_path / "two.tflite", (1, 49, 40, 2), depthwise)) > 2 * plain


def recurrent(steps: int, path: Path) -> Path:
    """An LSTM of 64 units."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 256, 8), "r": (1, 256, 64)}
    stored = [numpy_helper.from_array(rng.normal(0, 0.1, s).astype(np.float32), name) for name, s in shapes.items()]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=64)
    values = {"x": [steps, 1, 8], "y": [steps, 1, 1, 64]}
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in values.items()]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path / "m.onnx")
    compile_model(load_model(path / "m.onnx"), Options()).write(path / f"{steps}.tflite")
    return path / f"{steps}.tflite"


def test_what_a_loop_holds_counts_as_often_as_it_runs(tmp_path: Path) -> None:
    files = {steps: recurrent(steps, tmp_path) for steps in (100, 200)}
    for steps, path in files.items():
        placed = placed_operators(path)
        inner = [each for each in placed if each.turns != 1.0]
        assert {each.turns for each in inner} == {steps / TOGETHER[0], steps / TOGETHER[0] + 1}
        assert {each.told.kind for each in inner if each.turns != steps / TOGETHER[0]} == {"LESS"}
        assert sum(each.told.kind == "LOGISTIC" for each in inner) == TOGETHER[0]
    short, long = (estimates(path, ["arm64-a76"])[0] for path in files.values())
    of_kind = [sum(node.ms for node in found.nodes if node.kind == "LOGISTIC") for found in (short, long)]
    assert of_kind[1] == pytest.approx(2 * of_kind[0], rel=1e-6)
    assert long.ms > 1.9 * short.ms


def test_a_loop_and_its_turns_take_time(tmp_path: Path) -> None:
    ((_, costs),) = loops(("arm64-a76",)).machines
    for steps in (100, 200):
        (found,) = estimates(recurrent(steps, tmp_path), ["arm64-a76"])
        (of_loop,) = [node.ms for node in found.nodes if node.kind == "WHILE"]
        assert of_loop == pytest.approx((costs.loop + steps / TOGETHER[0] * costs.turn) / 1e6, rel=1e-9)


def test_a_loop_of_unknown_length_is_refused(tmp_path: Path) -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (int64 n, float[3] x) => (float[3] last)
        <bool go = {1}> { last = Loop(n, go, x) <body = b (int64 i, bool c, float[3] v) => (bool d, float[3] w) {
            d = Identity(c)  w = Add(v, x) }> }""")
    case.compiled.write(tmp_path / "m.tflite")
    assert {each.turns for each in placed_operators(tmp_path / "m.tflite")} == {1.0, None}
    with pytest.raises(Unsupported, match="does not count to a constant"):
        estimates(tmp_path / "m.tflite", ["arm64-a76"])


@pytest.mark.parametrize(("own", "free"), [(True, True), (False, False)])
def test_the_product_of_integers_and_their_sigmoid_is_free(own: bool, free: bool, tmp_path: Path) -> None:
    """XNNPACK makes one look-up of both; with another tensor's sigmoid it multiplies."""
    plain, gate = QuantParams.per_tensor(0.05, -3), QuantParams.per_tensor(1 / 256, -128)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder = Builder(program, subgraph)
    x, other = (Tensor(name, (1, 14, 14, 96), "int8", None, plain) for name in ("x", "other"))
    subgraph.inputs = [x, other]
    builder.results = (gate,)
    sigmoid = builder.logistic(x if own else other)
    builder.results = (plain,)
    y = builder.mul(x, sigmoid)
    subgraph.outputs = [y]
    write_model(
        program, Signature({"x": x, "other": other}, {"y": y}), tmp_path / "m.tflite", metadata={}, description=""
    )
    for device in DEVICES:
        nodes = {node.kind: node.ms for node in estimates(tmp_path / "m.tflite", [device])[0].nodes}
        assert (nodes["MUL"] < 0.01 * nodes["LOGISTIC"]) is free
