"""DynamicQuantizeLSTM as a Scan: what ONNX Runtime computes in one thread, and files of TFLite with free sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.onnx.onnxruntime_compat import quantizes_by_thread
from convertkit.targets.forms.bodies import infer_bodies
from convertkit.targets.forms.quantized_lstm import expand_quantized_lstms

_INPUTS, _HIDDEN = 5, 6


def lstm(direction="forward", *, states=False, columns=False, unsigned=False, bits=8, **more):
    """A model of that one node, its batch and its number of turns free.

    ONNX Runtime sums pairs of products in 16 bits on processors without VNNI; signed weights of 7 bits fit there.
    """
    rng = np.random.default_rng(len(direction))
    ways = 2 if direction == "bidirectional" else 1
    kind, low, high = (np.uint8, 0, 255) if unsigned else (np.int8, 1 - 2 ** (bits - 1), 2 ** (bits - 1))
    many = (ways, 4 * _HIDDEN) if columns else (ways,)
    constants = {
        "w": rng.integers(low, high, (ways, _INPUTS, 4 * _HIDDEN)).astype(kind),
        "r": rng.integers(low, high, (ways, _HIDDEN, 4 * _HIDDEN)).astype(kind),
        "b": rng.standard_normal((ways, 8 * _HIDDEN)).astype(np.float32),
        "ws": rng.uniform(0.002, 0.006, many).astype(np.float32),
        "rs": rng.uniform(0.002, 0.006, many).astype(np.float32),
        "wz": np.full(many, 0 if columns else 3, kind),
        "rz": np.full(many, 0 if columns else 7, kind),
    }
    begun = ["h", "c"] if states else ["", ""]
    names = ["x", "w", "r", "b", "", *begun, "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "yh", "yc"], domain="com.microsoft", hidden_size=_HIDDEN,
        direction=direction, **more,
    )  # fmt: skip
    real = TensorProto.FLOAT
    given = [helper.make_tensor_value_info("x", real, ["turns", "batch", _INPUTS])]
    given += [helper.make_tensor_value_info(name, real, [ways, "batch", _HIDDEN]) for name in begun if name]
    made = [helper.make_tensor_value_info("y", real, ["turns", ways, "batch", _HIDDEN])]
    made += [helper.make_tensor_value_info(name, real, [ways, "batch", _HIDDEN]) for name in ("yh", "yc")]
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "one", given, made, stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feed)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("form", [{}, {"states": True}, {"columns": True}, {"unsigned": True}], ids=str)
def test_a_scan_computes_the_same(direction, form):
    model = lstm(direction, **form)
    expanded = ir.from_proto(model)
    expand_quantized_lstms(expanded)
    kinds = [node.op_type for node in expanded.graph]
    assert "DynamicQuantizeLSTM" not in kinds
    assert kinds.count("Scan") == (2 if direction == "bidirectional" else 1)
    rng = np.random.default_rng(4)
    for turns, batch in ((1, 1), (7, 3), (4, 9)):
        feed = {"x": rng.standard_normal((turns, batch, _INPUTS)).astype(np.float32)}
        if form.get("states"):
            ways = 2 if direction == "bidirectional" else 1
            feed |= {name: rng.standard_normal((ways, batch, _HIDDEN)).astype(np.float32) for name in "hc"}
        for expected, found in zip(run(model, feed), run(ir.to_proto(expanded), feed), strict=True):
            assert expected.shape == found.shape
            assert np.abs(expected - found).max() < 2e-6


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_tflite_takes_it_with_free_sizes(tmp_path, direction):
    path = tmp_path / "lstm.onnx"
    onnx.save(lstm(direction, bits=7), path)
    made = convertkit.export(path, "tflite", output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("turns", "batch", _INPUTS)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"clip": 3.0}, "clip is set"),
        ({"input_forget": 1}, "input_forget is set"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "activations"),
    ],
)
def test_other_forms_are_refused(more, reason):
    with pytest.raises(Unsupported, match=reason):
        expand_quantized_lstms(ir.from_proto(lstm(**more)))


def test_one_thread_where_threads_change_results(tmp_path: Path):
    (tmp_path / "empty.onnx").write_bytes(b"")
    onnx.save(lstm(), tmp_path / "lstm.onnx")
    assert quantizes_by_thread(tmp_path / "lstm.onnx")
    assert not quantizes_by_thread(tmp_path / "empty.onnx")


def test_constants_around_a_body_need_no_names_of_their_own():
    """Shape inference of a body knows them by their values: two without a name were one, of the first one's type."""
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        main (float[n,4] h, float[t,n,4] x) => (float[n,4] last) {
            last = Scan <num_scan_inputs = 1, body = turn (float[n,4] s, float[n,4] v) => (float[n,4] r) {
                w = Cast <to = 1> (whole) m = MatMul (s, w) a = Add (m, v) r = Mul (a, half)
            }> (h, x)
        }
    """)
    constants = {"whole": np.eye(4, dtype=np.int8), "half": np.float32(0.5)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())
    model = ir.from_proto(proto)
    for value in model.graph.initializers.values():
        value.const_value = ir.Tensor(value.const_value.numpy())
    infer_bodies(model.graph, dict(model.graph.opset_imports), model.ir_version)
    (body,) = model.graph.subgraphs()
    assert [str(node.outputs[0].dtype) for node in body] == ["FLOAT"] * 4
