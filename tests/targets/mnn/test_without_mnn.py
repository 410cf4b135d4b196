"""What the MNN target says of itself, and refuses, where MNN is not installed."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import FeedError, ToolError, Unsupported
from convertkit.targets.mnn.forms import write_forms
from convertkit.targets.mnn.runner import MnnRunner
from convertkit.targets.mnn.stage import WriteMnn, _refused, with_own_identity
from convertkit.targets.mnn.weights import Layer, stored_layers
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION = "fixtures/digits/model.pt", "fixtures/digits/calib.npz"
RANDOM = b"0123abcd-0000-4111-8222-0123456789ab"


def test_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("convertkit.targets.mnn.find_spec", lambda name: None)
    said = here("export", NETWORK, "--target", "mnn", "-o", tmp_path / "out")
    check_refusal(said, 4, "MNN is not installed", "convertkit-ml[mnn]")
    assert not any(tmp_path.iterdir())


def test_integer_activations_are_refused_with_the_ways_out(tmp_path):
    said = here("export", NETWORK, "--target", "mnn", "--int8", "--calib", CALIBRATION, "-o", tmp_path / "out")
    check_refusal(said, 2, "target mnn does not deliver int8: MNN's converter does not read integer", "--w8", "tflite")
    assert not any(tmp_path.iterdir())


def test_the_profile_leaves_activations_float():
    class Asked:
        precision = "w4"

    found = plugins.target("mnn").profile(Asked())
    assert (found.weight, found.weight_range, found.weight_only, found.block) == ("int4", (-7, 7), True, 64)
    assert "ConvTranspose" not in found.operators


def test_the_identity_is_what_the_content_gives():
    made, other = (with_own_identity(b"$\0\0\0" + RANDOM + rest) for rest in (b"\0rest", b"\0more"))
    assert (made[:4], made[40:]) == (b"$\0\0\0", b"\0rest")
    assert len({made[4:40], other[4:40], RANDOM}) == 3
    with pytest.raises(ToolError, match="has no identity"):
        with_own_identity(b"another format")


def test_two_random_identities_become_one():
    first, second = (RANDOM.replace(b"0123abcd", part) for part in (b"00000000", b"ffffffff"))
    assert with_own_identity(b"x$\0\0\0" + first + b"\0y") == with_own_identity(b"x$\0\0\0" + second + b"\0y")


def _stored(weight: np.ndarray, scales: np.ndarray, kind: str, **attributes: int) -> ir.Model:
    """``x`` into an operator with a weight behind DequantizeLinear; ``block`` and ``axis`` are that one's."""
    initial = {name: ir.tensor(value, name=name) for name, value in (("w", weight), ("s", scales))}
    values = {name: ir.Value(name=name, const_value=value, type=ir.TensorType(value.dtype), shape=value.shape)
              for name, value in initial.items()}  # fmt: skip
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
    made = ir.node("DequantizeLinear", [values["w"], values["s"]], attributes, name="stored")
    node = ir.node(kind, [x, made.outputs[0]], name="product")
    node.outputs[0].name = "y"
    graph = ir.Graph(
        [x], [node.outputs[0]], nodes=[made, node], initializers=list(values.values()), opset_imports={"": 21}
    )
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize(
    ("end", "bits", "layer"), [(127, 8, Layer(8, -1)), (126, 8, None), (7, 4, Layer(4, -1)), (6, 4, None)]
)
def test_weights_come_back_where_each_channel_reaches_the_end(end, bits, layer):
    weight = np.array([[end, -3, 5], [1, -end, 0]], np.int8)
    if bits == 4:
        weight = weight.astype(ir.DataType.INT4.numpy())
    found = stored_layers(_stored(weight.T, np.array([0.1, 0.2], np.float32), "MatMul", axis=1))
    assert found == ({} if layer is None else {"y": layer})


def test_a_bias_gives_the_product_its_name():
    """MNN puts the two into one operator, which is called after the sum."""
    model = _stored(np.array([[127, 1], [-127, 2]], np.int8).T, np.array([0.1, 0.2], np.float32), "MatMul", axis=1)
    bias = ir.Value(name="b", type=ir.TensorType(ir.DataType.FLOAT))
    total = ir.node("Add", [model.graph.outputs[0], bias], name="bias")
    total.outputs[0].name = "z"
    model.graph.append(total)
    model.graph.outputs[0] = total.outputs[0]
    assert stored_layers(model) == {"y": Layer(8, -1), "z": Layer(8, -1)}


def test_blocks_have_ends_of_their_own():
    weight = np.array([[127, 1, 2, -127, 5, 6]] * 2, np.int8)
    scales = np.ones((2, 2), np.float32)
    whole = _stored(weight.T, scales.T, "MatMul", axis=0, block_size=3)
    assert stored_layers(whole) == {"y": Layer(8, 3)}
    short = _stored(np.vstack([weight.T, weight.T[:1]]), np.ones((3, 2), np.float32), "MatMul", axis=0, block_size=3)
    assert stored_layers(short) == {}


def test_integers_beyond_32_bits_are_refused_with_the_node():
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, [3]) for name in "xy"]
    big = helper.make_tensor("k", TensorProto.INT64, [1], [1 << 40])
    node = helper.make_node("Add", ["x", "k"], ["y"], "far")
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [big])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(Unsupported, match=r"far \(Add\): the integer 1099511627776: MNN has 32 bits"):
        write_forms(model)


def test_a_type_that_it_lacks_is_refused(tmp_path):
    spec = TensorSpec("x", (2,), "float64")
    with pytest.raises(Unsupported, match="x: float64: MNN's runtime is given bool, float32, int32, int64 alone"):
        WriteMnn("float32").run(Artifact(tmp_path / "m.onnx", "onnx", (spec,), (), ""), tmp_path)


def test_a_runner_takes_no_integers_beyond_32_bits(tmp_path):
    spec = TensorSpec("x", (1,), "int64")
    runner = MnnRunner(Artifact(tmp_path / "model.mnn", "mnn", (spec,), (), ""))
    with pytest.raises(FeedError, match="input x has integers beyond 32 bits"):
        runner.run({"x": np.array([1 << 31])})


def test_a_refusal_names_the_first_node_of_the_kind_that_the_converter_does():
    graph = ir.Graph([], [], nodes=[ir.Node("", kind, [], name=f"n{at}") for at, kind in enumerate(("Relu", "Odd"))])
    model = ir.Model(graph, ir_version=10)
    assert str(_refused(model, {"operator": "Odd", "reason": "no"})).startswith("n1 (Odd): MNN does not convert it: no")
    assert isinstance(_refused(model, {"operator": None, "reason": "no"}), ToolError)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_reverse_layer_becomes_a_forward_one(kind):
    """MNN does not look at the direction."""
    rng, gates = np.random.default_rng(4), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    shapes = {"w": (1, gates * 3, 2), "r": (1, gates * 3, 3), "b": (1, gates * 6)}
    stored = [
        numpy_helper.from_array(rng.standard_normal(each).astype(np.float32), name) for name, each in shapes.items()
    ]
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y", "last"], "layer", hidden_size=3, direction="reverse")
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 2, 2])]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "last")]
    graph = helper.make_graph([node], "g", ports, results, stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    write_forms(model)
    assert [each.op_type for each in model.graph] == ["Gather", kind, "Gather"]
    x = rng.standard_normal((5, 2, 2)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})
        for each in (proto, ir.to_proto(model))
    )
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one, other)


def _recurrent(kind: str, steps: int | str = 5, lengths: list[int] | None = None, **attributes: object) -> ir.Model:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    shapes = {"w": (1, gates * 3, 2), "r": (1, gates * 3, 3)}
    stored = [numpy_helper.from_array(np.ones(each, np.float32), name) for name, each in shapes.items()]
    names = ["x", "w", "r"]
    if lengths is not None:
        stored.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
        names += ["", "lengths"]
    node = helper.make_node(kind, names, ["y"], "layer", hidden_size=3, **attributes)
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 2, 2])]
    graph = helper.make_graph([node], "g", ports, [helper.make_empty_tensor_value_info("y")], stored)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_recurrent("LSTM", clip=0.5), r"layer \(LSTM\): clip, which MNN does not look at"),
        (_recurrent("LSTM", input_forget=1), "input_forget, which MNN does not look at"),
        (_recurrent("LSTM", activations=["Sigmoid", "Relu", "Tanh"]), "activations Sigmoid, Relu, Tanh: MNN has"),
        (_recurrent("RNN", activations=["Relu"]), r"layer \(RNN\): activations Relu: MNN has tanh alone"),
        (_recurrent("GRU", lengths=[5, 3]), r"layer \(GRU\): lengths of sequences, which MNN does not look at"),
        (_recurrent("GRU", "T", lengths=[5, 5]), "lengths of sequences, which MNN does not look at"),
        (_recurrent("GRU", "T", direction="reverse"), "direction reverse, .* known at run time; fix it with --static"),
    ],
)  # fmt: skip
def test_what_mnn_ignores_in_a_recurrent_layer_is_refused_with_the_node(model, said):
    with pytest.raises(Unsupported, match=said):
        write_forms(model)


@pytest.mark.parametrize(
    "model",
    [
        _recurrent("LSTM", activations=["sigmoid", "Tanh", "TANH"], clip=0.0),
        _recurrent("GRU", lengths=[5, 5]),
        _recurrent("RNN", "T"),
    ],
)
def test_what_says_nothing_in_a_recurrent_layer_is_taken(model):
    write_forms(model)


def test_what_is_not_a_pair_of_stored_parameters_is_refused_with_the_node():
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "s", "y")]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["q"], "q")]
    nodes.append(helper.make_node("DequantizeLinear", ["q", "s"], ["y"]))
    ports[1] = helper.make_tensor_value_info("s", TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "g", ports[:2], ports[2:])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    with pytest.raises(Unsupported, match=r"^q \(QuantizeLinear\): MNN's converter does not read it"):
        write_forms(model)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_strides_are_stated_and_dilations_refused(kind):
    """MNN divides by strides that are not stated."""

    def pool(**attributes: list[int]) -> ir.Model:
        node = helper.make_node(kind, ["x"], ["y"], "pool", kernel_shape=[2, 3], **attributes)
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 6])]
        ports.append(helper.make_empty_tensor_value_info("y"))
        graph = helper.make_graph([node], "g", ports[:1], ports[1:])
        return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))

    plain, stated = pool(), pool(strides=[2, 1], dilations=[1, 1])
    for model, strides in ((plain, (1, 1)), (stated, (2, 1))):
        write_forms(model)
        assert tuple(next(iter(model.graph)).attributes.get_ints("strides")) == strides
    with pytest.raises(Unsupported, match=rf"^pool \({kind}\): dilations"):
        write_forms(pool(dilations=[2, 1]))
