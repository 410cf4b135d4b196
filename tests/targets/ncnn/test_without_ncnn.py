"""What the ncnn target says, writes and refuses where ncnn is not installed."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import FeedError, ToolError, Unsupported
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.compile import compile_model
from convertkit.targets.ncnn.handlers import NCNN
from convertkit.targets.ncnn.layers import Layer, Weight, spelled_float, stored, with_splits, written
from convertkit.targets.ncnn.runner import NcnnRunner
from convertkit.targets.ncnn.tensor import constant, kept_axes, natural
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION = "fixtures/digits/model.pt", "fixtures/digits/calib.npz"


def test_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("convertkit.targets.ncnn.find_spec", lambda name: None)
    said = here("export", NETWORK, "--target", "ncnn", "-o", tmp_path / "out")
    check_refusal(said, 4, "ncnn is not installed", "convertkit-ml[ncnn]")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--int8", "--calib", CALIBRATION), ("does not deliver int8: its integer kernels", "--w8", "tflite")),
        (("--w4",), ("does not deliver w4: its files have no weights of 4 bits", "--target mnn")),
    ],
)
def test_what_its_files_lack_is_refused_with_the_ways_out(tmp_path, flags, words):
    said = here("export", NETWORK, "--target", "ncnn", *flags, "-o", tmp_path / "out")
    check_refusal(said, 2, *words)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((1, 3, 8, 9), (3, 8, 9)),
        ((2, 3), (2, 3)),
        ((1,), (1,)),
        ((), (1,)),
        ((1, 1), (1,)),
        ((2, 3, 4, 5), (2, 3, 4, 5)),
        ((3, 1, 2, 4, 5), (3, 2, 4, 5)),
        ((1, 2, 3, 1, 4, 5), (2, 3, 4, 5)),
    ],
)
def test_a_blob_has_no_batch_and_at_most_four_dimensions(shape, sizes):
    assert natural(shape) == sizes


def test_axes_that_are_wanted_stay():
    assert kept_axes((1, 2, 1, 3, 4), frozenset((0,))) == (0, 1, 3, 4)
    with pytest.raises(Unsupported, match="at most four dimensions"):
        kept_axes((2, 2, 2, 2, 2))
    with pytest.raises(Unsupported, match="without elements"):
        natural((1, 0))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "1.00000001e-01"), (2.0, "2.00000000e+00"), (np.inf, "3.40282347e+38"), (-np.inf, "-3.40282347e+38")],
)
def test_floats_are_told_from_integers_and_apart(value, text):
    assert spelled_float(float(np.float32(value))) == text
    if np.isfinite(value):
        assert np.float32(float(text)) == np.float32(value)


def test_a_line_has_arrays_and_numbers():
    layer = Layer("Crop", "cut", ("x",), ("y",), {11: (1, 2), 9: (0, 3), 5: 0.5})
    assert (
        layer.line() == "Crop             cut                      1 1 x y 5=5.00000000e-01 -23309=2,0,3 -23311=2,1,2"
    )


def test_what_is_read_twice_is_split_and_ports_keep_their_names():
    layers = [
        Layer("Input", "x", (), ("x",)), Layer("ReLU", "a", ("x",), ("a",)), Layer("Sigmoid", "b", ("x",), ("b",)),
        Layer("BinaryOp", "c", ("a", "b"), ("c",)), Layer("Exp", "unread", ("a",), ("d",)),
    ]  # fmt: skip
    made = with_splits(layers, ["a", "c"])
    assert [(each.kind, each.inputs, each.outputs) for each in made] == [
        ("Input", (), ("x",)),
        ("Split", ("x",), ("x/0", "x/1")),
        ("ReLU", ("x/0",), ("a/all",)),
        ("Split", ("a/all",), ("a/0", "a")),
        ("Sigmoid", ("x/1",), ("b",)),
        ("BinaryOp", ("a/0", "b"), ("c",)),
    ]
    assert written(made).splitlines()[:2] == ["7767517", "6 8"]


def test_weights_take_the_smallest_form_that_is_exact():
    rng = np.random.default_rng(0)
    odd = rng.standard_normal(2000).astype(np.float32)
    half = odd.astype(np.float16).astype(np.float32)
    few = (rng.integers(-127, 128, 2000) * np.float32(0.013)).astype(np.float32)
    assert len(Weight(odd, tagged=True).data(compact=True)) == 4 + 8000
    assert Weight(half, tagged=True).data(compact=True)[:4] == bytes.fromhex("476b3001")
    table = Weight(few, tagged=True).data(compact=True)
    assert len(table) == 4 + 1024 + 2000
    entries, places = np.frombuffer(table[4:1028], "<f4"), np.frombuffer(table[1028:], np.uint8)
    assert np.array_equal(entries[places], few)
    assert len(Weight(few, tagged=True).data(compact=False)) == 4 + 8000
    assert len(Weight(np.resize(odd[:256], 2000), tagged=True).data(compact=True)) == 4 + 1024 + 2000
    assert len(Weight(np.resize(odd[:257], 2000), tagged=True).data(compact=True)) == 4 + 8000
    assert len(Weight(few).data(compact=True)) == 8000


def test_negative_zero_stays_in_a_table():
    values = np.array([0.0, -0.0, 1.0] * 800, np.float32)
    table = Weight(values, tagged=True).data(compact=True)
    entries, places = np.frombuffer(table[4:1028], "<f4"), np.frombuffer(table[1028 : 1028 + 2400], np.uint8)
    assert np.array_equal(np.signbit(entries[places]), np.signbit(values))


def test_names_have_no_white_space_and_are_not_too_long():
    builder = Builder()
    assert builder.name("a b\tc") == "a_b_c"
    assert builder.name("a b c") == "a_b_c_1"
    assert len(builder.name("x" * 400)) == 200
    assert len({builder.name("x" * 400) for _ in range(3)}) == 3


def _graph(
    kind: str, inputs: list[str], dtype: int, shape: list[int], axis: int | None = None, **stored: np.ndarray
) -> ir.Model:
    ports = [helper.make_tensor_value_info("x", dtype, shape), helper.make_empty_tensor_value_info("y")]
    constants = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    nodes = [helper.make_node(kind, inputs, ["y"], "node", axis=axis)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_graph("Sqrt", ["x"], TensorProto.DOUBLE, [3]), "input x: double: ncnn computes in float32 alone"),
        (_graph("Relu", ["x"], TensorProto.FLOAT, ["N", 3]), "input x: .*only known at run time"),
        (_graph("Neg", ["x"], TensorProto.INT64, [3]), r"node \(Neg-13\): an input of integers other than for an emb"),
        (_graph("Pow", ["k", "x"], TensorProto.INT64, [3], k=np.ones(3, np.float32)), "an input of integers other"),
        (_graph("Gather", ["k", "x"], TensorProto.INT64, [2], 1, k=np.ones((4, 3), np.float32)), "places that are"),
        (_graph("Det", ["x"], TensorProto.FLOAT, [3, 3]), r"node \(Det-11\): ncnn has no such operator"),
        (_graph("MatMul", ["x", "x"], TensorProto.FLOAT, [2, 2, 2, 2, 2]), "input x: .*at most four"),
    ],
)
def test_a_refusal_says_what_and_why_and_the_ways_out(model, said):
    with pytest.raises(Unsupported, match=said) as found:
        compile_model(model)
    assert found.value.ways_out == ("--target onnxruntime", "--target mnn")


def test_an_output_of_integers_is_refused_by_its_name():
    model = _graph("Relu", ["x"], TensorProto.FLOAT, [1, 3])
    known = ir.Value(name="known", const_value=ir.tensor(np.array([1, 2]), name="known"))
    model.graph.register_initializer(known)
    model.graph.outputs.append(known)
    with pytest.raises(Unsupported, match=r"^output known: int64 numbers: ncnn computes in float32") as found:
        compile_model(model)
    assert found.value.ways_out == ("--target onnxruntime", "--target mnn")


def test_the_same_graph_gives_the_same_files():
    made = [compile_model(_graph("Add", ["x", "k"], TensorProto.FLOAT, [1, 3], k=np.ones(3, np.float32))) for _ in "ab"]
    assert written(made[0].layers) == written(made[1].layers)
    assert stored(made[0].layers, compact=True) == stored(made[1].layers, compact=True)


def test_a_runner_takes_no_negative_places(tmp_path):
    spec = TensorSpec("x", (1,), "int64")
    port = {"blob": "x", "sizes": [1], "whole": True}
    (tmp_path / "ports.json").write_text(json.dumps({"inputs": [port], "outputs": []}))
    runner = NcnnRunner(Artifact(tmp_path / "model.param", "ncnn", (spec,), (), ""))
    with pytest.raises(FeedError, match="input x has negative places"):
        runner.run({"x": np.array([-1])})


def test_a_file_without_what_lies_beside_it_is_refused(tmp_path):
    (tmp_path / "model.param").write_text("7767517\n0 0\n")
    artifact = Artifact(tmp_path / "model.param", "ncnn", (), (), "")
    with pytest.raises(ToolError, match=r"model\.bin is not beside model\.param"):
        NcnnRunner(artifact).__enter__()
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(ToolError, match=r"ports\.json is not beside model\.param"):
        NcnnRunner(artifact).__enter__()
    for text in (
        "{}",
        "[]",
        "not JSON",
        '{"inputs": [{"blob": "x"}], "outputs": []}',
        '{"inputs": [3], "outputs": []}',
    ):
        (tmp_path / "ports.json").write_text(text)
        with pytest.raises(ToolError, match=r"ports\.json is not beside model\.param, or is not what an export wrote"):
            NcnnRunner(artifact).__enter__()
    (tmp_path / "ports.json").write_text('{"inputs": [], "outputs": [{"blob": "y"}]}')
    with pytest.raises(ToolError, match=r"ports\.json has another number of inputs and outputs"):
        NcnnRunner(artifact).__enter__()


@pytest.mark.parametrize(("sizes", "layers"), [((2, 0, 3), [(2, 3)]), ((0, 5), [])])
def test_parts_without_elements_are_constants(sizes, layers):
    """A layer refuses them."""
    builder = Builder()
    x = builder.input("x", (1, 5, 4))
    parts = NCNN.find("Split", 18)(builder, x, constant(np.array(sizes)), axis=1)
    assert [part.shape for part in parts] == [(1, size, 4) for size in sizes]
    assert [part.array is not None for part in parts] == [size == 0 for size in sizes]
    assert [each.parameters[0] for each in builder.layers if each.kind == "Slice"] == layers
