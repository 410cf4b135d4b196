"""Sizes of generated feeds: small batches, images that are images, formulas kept, other ones where a model refuses."""

import numpy as np
import onnx
import pytest
from onnx import parser

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.errors import ToolError
from convertkit.parity.feeds import proof_feeds
from convertkit.parity.free_sizes import attempts, named_sizes, sizes_of_rows


def spec(name, *shape):
    return TensorSpec(name, shape, "float32")


def test_batches_are_small_and_images_are_not_square():
    inputs = [spec("x", "N", 3, "H", "W")]
    assert named_sizes(inputs, 0, 0) == {"N": 1, "H": 32, "W": 64}
    assert named_sizes(inputs, 0, 1) == {"N": 3, "H": 64, "W": 32}
    assert attempts(inputs) > 1
    assert attempts([spec("x", "N", 3)]) == 1


def test_what_leads_may_be_no_batch():
    inputs = [spec("nodes", "N", 8), spec("edges", 2, "E")]
    assert sizes_of_rows(inputs) == [{"N": (32, 64)}, {"N": (4096, 6144)}]


def test_one_free_length_is_a_recording_s_in_the_end():
    inputs = [spec("x", "N", "L")]
    assert named_sizes(inputs, attempts(inputs) - 1, 1) == {"N": 3, "L": 6144}


@pytest.mark.parametrize("names", ["ABCD", "ABCDEF"])
def test_many_dynamic_axes_are_small(names):
    inputs = [spec("x", "N", *names)]
    for attempt in range(attempts(inputs)):
        for turn in (0, 1):
            sizes = named_sizes(inputs, attempt, turn)
            assert np.prod([*sizes.values()]) < 1 << 26
    assert len(set(named_sizes(inputs, 0, 0).values())) > 2


def test_formulas_in_names_are_kept():
    inputs = [spec("x", "N", 3, "4*H", "W"), spec("mask", "N", "H + past", "2*N")]
    sizes = named_sizes(inputs, 0, 1)
    assert sizes["4*H"] == 4 * 64
    assert sizes["H + past"] == 64 + 64
    assert sizes["2*N"] == 6


def test_stated_sizes_are_the_only_ones():
    inputs = [spec("x", "N", "T", 6), spec("mask", "N", "2*T")]
    stated = {"N": (2, 5), "T": (8, 4, 16)}
    found = [named_sizes(inputs, 0, turn, stated) for turn in (0, 1)]
    assert found == [{"N": 2, "T": 8, "2*T": 16}, {"N": 5, "T": 16, "2*T": 32}]


@pytest.mark.parametrize(
    ("rows", "stated", "batches"),
    [
        (1, {}, [1, 1, 3]),
        (1, {"N": (1, 8)}, [1, 1, 8]),
        (1, {"N": (4, 2)}, [4, 4, 2]),
        (5, {}, [5, 5, 3]),
        (5, {"N": (1, 4)}, [1, 1, 4]),
        (5, {"N": (2, 4)}, [2, 2, 4]),
    ],
)
def test_samples_come_in_stated_batches(rows, stated, batches):
    samples = [{"x": np.full((rows, 6), place, np.float32)} for place in range(2)]
    feeds = proof_feeds([spec("x", "N", 6)], samples, 0, stated=stated)
    assert [len(feed["x"]) for feed in feeds] == batches
    assert [float(feed["x"][0, 0]) for feed in feeds] == [0, 1, 0]


def test_a_name_that_is_no_formula_is_a_name():
    assert named_sizes([spec("x", "N", "seq-len", "a/b")], 0, 0) == {"N": 1, "seq-len": 32, "a/b": 64}


def exported(tmp_path, body, declared="float[n,2,h,w] x", target="onnxruntime"):
    text = f'<ir_version: 8, opset_import: ["" : 18]> g ({declared}) => (float[a,b,c,d] y) {{ {body} }}'
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    return convertkit.export(tmp_path / "m.onnx", target, output=tmp_path / "out")


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_a_window_larger_than_one_pixel_runs(tmp_path, target):
    result = exported(tmp_path, "p = MaxPool<kernel_shape=[9,9]>(x) y = Sin(p)", target=target)
    x = np.random.default_rng(0).normal(size=(2, 2, 11, 20)).astype(np.float32)
    assert result.run({"x": x})["y"].shape == (2, 2, 3, 12)


def test_images_that_must_be_square_get_square_ones(tmp_path):
    assert exported(tmp_path, "y = MatMul(x, x)").path


def test_what_no_size_fits_is_told(tmp_path):
    body = "two = Constant<value_ints=[0,0,7,5]>() y = Reshape(x, two)"
    with pytest.raises(ToolError, match="the source fails on generated inputs"):
        exported(tmp_path, body)


def test_a_state_s_only_name_may_be_the_batch():
    """Where names are apart, a last choice of sizes has the batch in a recurrent state, too."""
    inputs = (TensorSpec("x", ("a", "b"), "float32"), TensorSpec("state", (2, "c", 128), "float32"))
    sizes = [named_sizes(inputs, attempt, 0) for attempt in range(attempts(inputs))]
    assert [each["c"] for each in sizes] == [64, 64, 3, 224, 1, 1, 1, 1, 1]
    assert {"a": 1, "b": 224, "c": 1} in sizes
    assert {"a": 3, "b": 224, "c": 3} in [named_sizes(inputs, attempt, 1) for attempt in range(attempts(inputs))]


def test_one_input_has_no_state():
    assert attempts((TensorSpec("x", ("a", "b"), "float32"),)) == 5
    assert attempts((TensorSpec("x", (1, "b"), "float32"), TensorSpec("y", (1, 4, "c"), "float32"))) == 4


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_edges_of_a_graph_of_any_size(target, tmp_path):
    """Rows that another input picks: generated places are below 4, and a batch of one has no such rows."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[N,4] nodes, int64[2,E] edges) => (float[N,4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] last = {1}> {
        source = Gather(edges, zero) target = Gather(edges, one) messages = Gather(nodes, source)
        places = Unsqueeze(target, last) y = ScatterND<reduction = "add">(nodes, places, messages) }"""
    onnx.save(parser.parse_model(text), tmp_path / "graph.onnx")
    result = convertkit.export(tmp_path / "graph.onnx", target, output=tmp_path / "made", no_cache=True)
    nodes, edges = np.arange(20, dtype=np.float32).reshape(5, 4), np.array([[0, 4, 3], [2, 2, 1]])
    wanted = nodes.copy()
    np.add.at(wanted, edges[1], nodes[edges[0]])
    np.testing.assert_allclose(result.run({"nodes": nodes, "edges": edges})["y"], wanted)
