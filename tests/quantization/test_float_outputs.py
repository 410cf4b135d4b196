"""Kernels that write float do so where float alone reads: nothing is rounded between them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.quantization.models import images, model_of, small_cnn

RNG = np.random.default_rng(7)
TOKENS = np.random.default_rng(8).standard_normal((24, 6, 16)).astype(np.float32)
ROWS = np.array([0, 6, 2, 8])


def attention() -> onnx.ModelProto:
    """Two heads of 8 over 6 tokens of 16, without a scale."""
    c = {name: RNG.normal(0, 0.25, (16, 16)).astype(np.float32) for name in ("q", "k", "v", "o")}
    nodes = []
    for name, turned in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["x", name], [f"{name}1"], name),
            helper.make_node("Reshape", [f"{name}1", "rows"], [f"{name}2"], f"{name}/rows"),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], f"{name}/heads", perm=turned),
        ]
    nodes += [
        helper.make_node("MatMul", ["q3", "k3"], ["s"], "scores"),
        helper.make_node("Softmax", ["s"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v3"], ["m"], "mixed"),
        helper.make_node("Transpose", ["m"], ["t"], "back", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "flat"], ["f"], "joined"),
        helper.make_node("MatMul", ["f", "o"], ["y"], "out"),
    ]
    shapes = {"rows": ROWS, "flat": np.array([0, 6, 16])}
    return model_of(nodes, {**c, **shapes}, {"x": ["N", 6, 16]}, {"y": ["N", 6, 16]})


def gated(*behind: onnx.NodeProto, taps: int = 1) -> onnx.ModelProto:
    """A convolution whose Relu is read by ``behind``, which makes ``g`` of ``r``, and another convolution."""
    c = {
        "w1": RNG.normal(0, 0.3, (16, 3, 3, 3)).astype(np.float32),
        "b1": RNG.normal(0, 0.2, 16).astype(np.float32),
        "w2": RNG.normal(0, 0.3, (4, 16, taps, taps)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], "first"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        *behind,
        helper.make_node("Conv", ["g", "w2"], ["y"], "second"),
    ]
    return model_of(nodes, c, {"x": ["N", 3, 12, 12]}, {"y": ["N", 4, 10, 10]})


def rounded(quantized, model: onnx.ModelProto, data: np.ndarray, target: str = "openvino") -> tuple[set[str], object]:
    result = quantized(model, data, target=target)
    return set(result.pairs()), result


def test_attention_is_float_between_its_dense_layers(quantized) -> None:
    """The inputs of the dense layers are rounded, where they are wanted; nothing that the attention reads or moves."""
    values, result = rounded(quantized, attention(), TOKENS, "openvino, any processor")
    assert values == {"x", "f"}
    assert result.snr_db(TOKENS) > 30


def test_queries_and_keys_have_no_zero_point_where_their_products_are_integers(quantized) -> None:
    """Also of all that shares their parameters; values and probabilities are float, and the input has a zero point."""
    data = TOKENS + np.float32(0.5)
    values, result = rounded(quantized, attention(), data)
    zeros = {name: zero for name, (_, zero) in result.pairs().items()}
    assert values == {"x", "q1", "q2", "q3", "k1", "k2", "k3", "f"}
    assert {name for name, zero in zeros.items() if zero == 0} >= {"q1", "q2", "q3", "k1", "k2", "k3"}
    assert zeros["x"] != 0
    assert result.snr_db(data) > 33


def test_what_a_product_of_scores_reads_has_no_zero_point_whoever_else_reads_it(quantized) -> None:
    """Here the input itself, which dense layers read, too."""
    model = attention()
    (scores,) = (node for node in model.graph.node if node.name == "scores")
    model.graph.node.remove(scores)
    turned = helper.make_node("Transpose", ["x"], ["xt"], "turned", perm=[0, 2, 1])
    own = helper.make_node("MatMul", ["x", "xt"], ["s1"], "scores")
    heads = helper.make_node("Unsqueeze", ["s1", "one"], ["s"], "for all heads")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
    for place, node in enumerate((turned, own, heads)):
        model.graph.node.insert(place, node)
    soft = next(node for node in model.graph.node if node.name == "softmax")
    model.graph.node.remove(soft)
    model.graph.node.insert(2, helper.make_node("Softmax", ["s1"], ["p1"], "softmax", axis=-1))
    model.graph.node[3].input[0], model.graph.node[3].output[0] = "p1", "p"
    data = TOKENS + np.float32(0.5)
    _, result = rounded(quantized, model, data)
    assert result.pairs()["x"][1] == result.pairs()["xt"][1] == 0
    assert result.snr_db(data) > 30


def test_targets_that_do_not_write_float_round_there(quantized) -> None:
    values = set(quantized(attention(), TOKENS, target="tflite", without_costs=True).pairs())
    assert {"q1", "k1", "v1"} <= values


def test_a_relu_is_not_lost_where_the_range_that_expressed_it_goes(quantized) -> None:
    values, result = rounded(quantized, gated(helper.make_node("Softplus", ["r"], ["g"], "plus")), images(24))
    assert values == {"x", "g"}
    assert "Relu" in result.operators()
    assert result.snr_db(images(16, 3)) > 28


def test_what_integers_read_too_is_rounded_once(quantized) -> None:
    """The second convolution reads the sum of a pooled integer map and of a float operator on the same map."""
    pool = helper.make_node("AveragePool", ["r"], ["a"], "pool", kernel_shape=[3, 3], pads=[0, 0, 2, 2])
    plus = helper.make_node("Softplus", ["r"], ["p"], "plus")
    join = helper.make_node("Add", ["a", "p"], ["g"], "join")
    values, _ = rounded(quantized, gated(pool, plus, join), images(24))
    assert values == {"x", "c", "a", "p", "g"}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("Transpose", {"x", "g"}), ("MaxPool", {"x", "s", "g"})],
    ids=["elements are only reordered", "something is computed"],
)
def test_moves_in_front_of_an_integer_kernel(quantized, kind: str, wanted: set[str]) -> None:
    """A float result is rounded behind a Transpose, and before a MaxPool, which is quicker in integers."""
    attributes = {"perm": [0, 1, 3, 2]} if kind == "Transpose" else {"kernel_shape": [1, 1]}
    sigmoid = helper.make_node("Softplus", ["r"], ["s"], "plus")
    values, _ = rounded(
        quantized, gated(sigmoid, helper.make_node(kind, ["s"], ["g"], "move", **attributes)), images(24)
    )
    assert values == wanted


def test_a_gate_behind_a_convolution_is_rounded_before_it_is_moved(quantized) -> None:
    """The convolution multiplies with its own sigmoid as it writes, so that integers are what is moved."""
    silu = helper.make_node("Sigmoid", ["r"], ["s"], "gate"), helper.make_node("Mul", ["r", "s"], ["m"], "silu")
    moved = helper.make_node("Transpose", ["m"], ["g"], "move", perm=[0, 1, 3, 2])
    assert rounded(quantized, gated(*silu, moved), images(24))[0] == {"x", "m", "g"}
    behind_float = helper.make_node("Softplus", ["r"], ["p"], "plus"), *silu
    behind_float[1].input[0] = behind_float[2].input[0] = "p"
    assert rounded(quantized, gated(*behind_float, moved), images(24))[0] == {"x", "g"}


def test_a_resize_that_copies_moves_integers(quantized) -> None:
    """Its result has the parameters of what it reads."""
    scales = helper.make_node("Constant", [], ["two"], "two", value_floats=[1.0, 1.0, 2.0, 2.0])
    for mode, moves in (("nearest", True), ("linear", False)):
        model = gated(scales, helper.make_node("Resize", ["r", "", "two"], ["g"], "larger", mode=mode), taps=3)
        model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["N", 4, 18, 18]))
        pairs = quantized(model, images(24), target="openvino").pairs()
        assert set(pairs) == ({"x", "c", "g"} if moves else {"x", "g"})
        assert not moves or pairs["c"] == pairs["g"]


def test_a_residual_is_added_in_float_where_the_kernel_adds_it(quantized) -> None:
    """The pointwise convolution's own sum has no pair, what is added to it has one, the model's output none."""
    result = quantized(small_cnn(), images(24), target="tensorrt")
    makers = {node.output[0]: node.op_type for node in result.graph.node}
    inputs = {node.name: [makers[name] for name in node.input if name in makers] for node in result.graph.node}
    assert sorted(inputs["residual"]) == ["Conv", "DequantizeLinear"]
    assert "y" not in result.pairs()


def test_of_two_convolutions_one_is_rounded_before_their_sum(quantized) -> None:
    other = helper.make_node("Conv", ["x", "w1"], ["o"], "other")
    add = helper.make_node("Add", ["r", "o"], ["g"], "join")
    result = quantized(gated(other, add), images(24), target="tensorrt")
    assert set(result.pairs()) == {"x", "r", "g"}


def test_what_is_an_output_too_is_rounded_before_its_sum(quantized) -> None:
    other = helper.make_node("Conv", ["x", "w1"], ["o"], "other")
    model = gated(other, helper.make_node("Add", ["r", "o"], ["g"], "join"))
    model.graph.output.append(helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, ["N", 16, 10, 10]))
    result = quantized(model, images(24), target="tensorrt")
    makers = {node.output[0]: node.op_type for node in result.graph.node}
    (join,) = (node for node in result.graph.node if node.name == "join")
    assert [makers[name] for name in join.input] == ["DequantizeLinear"] * 2


@pytest.mark.parametrize(("choices", "rounded_sum"), [({}, False), ({"full_integer": True}, True)])
def test_sums_between_blocks_of_a_transformer_stay_float(quantized, choices: dict, rounded_sum: bool) -> None:
    """What a block adds to is read by all later ones; a convolution's residual is the test's above."""
    weights = {name: RNG.normal(0, 0.25, (16, 16)).astype(np.float32) for name in ("a", "b")}
    behind = "MatMul" if rounded_sum else "Softplus"
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["m"], "first"),
        helper.make_node("MatMul", ["x", "b"], ["o"], "second"),
        helper.make_node("Add", ["m", "o"], ["s"], "sum"),
        helper.make_node(behind, ["s", "b"] if rounded_sum else ["s"], ["y"], "behind"),
    ]
    model = model_of(nodes, weights, {"x": ["N", 6, 16]}, {"y": ["N", 6, 16]})
    result = quantized(model, {"x": TOKENS}, target="tensorrt", **choices)
    makers = {node.output[0]: node.op_type for node in result.graph.node}
    (join,) = (node for node in result.graph.node if node.name == "sum")
    assert ("DequantizeLinear" in {makers[name] for name in join.input}) == rounded_sum


@pytest.mark.parametrize("float_map", [True, False], ids=["a float operator's", "the convolution's own"])
def test_a_mean_of_what_is_written_as_float_reads_float(quantized, float_map: bool) -> None:
    """Squeeze and excite: a map is averaged, and multiplied with what is computed of its means.

    The product reads floats, so that rounding a float operator's map for the mean alone would take a kernel.  The
    convolution's own map is rounded once, for both.
    """
    read = "p" if float_map else "r"
    nodes = [
        helper.make_node("GlobalAveragePool", [read], ["a"], "mean"),
        helper.make_node("Conv", ["a", "w3"], ["e"], "excite"),
        helper.make_node("Sigmoid", ["e"], ["s"], "sigmoid"),
        helper.make_node("Mul", [read, "s"], ["g"], "scaled"),
    ]
    model = gated(*([helper.make_node("Softplus", ["r"], ["p"], "act")] if float_map else []), *nodes)
    weight = RNG.normal(0, 0.3, (16, 16, 1, 1)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w3"))
    values, result = rounded(quantized, model, images(24))
    assert values == ({"x", "a", "g"} if float_map else {"x", "c", "a", "g"})
    assert result.snr_db(images(16, 3)) > 28


def test_a_mean_of_what_nothing_else_reads_is_of_integers(quantized) -> None:
    """A convolution rounds its own gate as it writes; the mean is then quicker."""
    nodes = [
        helper.make_node("Sigmoid", ["r"], ["s"], "sigmoid"),
        helper.make_node("Mul", ["r", "s"], ["m"], "silu"),
        helper.make_node("AveragePool", ["m"], ["g"], "mean", kernel_shape=[1, 1]),
    ]
    assert rounded(quantized, gated(*nodes), images(24))[0] == {"x", "m", "g"}
