"""What operators meant in older opsets: canonical and in TFLite, against whoever still runs them as they were.

A row names an operator, an opset, its inputs and its constants; the oracle is the row's own formula where it has one
(ONNX Runtime begins at opset 7), else ONNX Runtime on the model as written, else ONNX's reference evaluator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.onnx import as_seven
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case, numbers

Formula = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Row:
    """One node; a tuple among ``inputs`` is the shape of seeded numbers."""

    op: str
    opset: int
    inputs: Sequence[object] = ((2, 3, 4, 5),)
    constants: Sequence[object] = ()
    attributes: dict[str, object] = field(default_factory=dict)
    expect: Formula | None = None
    outputs: int = 1
    like: int = 0
    """The opset whose operator means the same without the attribute ``output_sequence``."""

    @property
    def feed(self) -> dict[str, np.ndarray]:
        return {f"x{place}": _array(value, place) for place, value in enumerate(self.inputs)}

    @property
    def model(self) -> onnx.ModelProto:
        stored = {f"k{place}": _array(value, place + 5) for place, value in enumerate(self.constants)
                  if value is not None}  # fmt: skip
        names = [*self.feed, *(f"k{place}" if f"k{place}" in stored else "" for place in range(len(self.constants)))]
        results = [f"y{place}" for place in range(self.outputs)]
        node = helper.make_node(self.op, names, results, name="it", **self.attributes)
        kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in self.feed.items()}
        infos = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in self.feed.items()]
        initializers = [numpy_helper.from_array(value, name) for name, value in stored.items()]
        declared = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph([node], "g", infos, declared, initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def _array(value: object, seed: int) -> np.ndarray:
    return numbers(*value, seed=seed) if isinstance(value, tuple) else np.asarray(value)


def _row(*args, **kwargs):
    row = Row(*args, **kwargs)
    return pytest.param(row, id=f"{row.op}-{row.opset}-" + "-".join(f"{k}{v}" for k, v in row.attributes.items()))


X = (2, 3, 4, 5)
UP = np.array([1, 1, 2, 3], np.float32)
BY_AXIS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Less": np.less,
    "Greater": np.greater,
}


def _operands(op: str) -> list[object]:
    return [numbers(*X) > 0, numbers(3, 4) > 0] if op in ("And", "Or", "Xor") else [X, (3, 4)]


def _scaled(x: np.ndarray, factors: Sequence[float]) -> np.ndarray:
    for axis, factor in enumerate(factors):
        x = np.take(x, np.floor(np.arange(int(x.shape[axis] * factor)) / factor).astype(int), axis)
    return x


def _norm(x, s, b, m, v, epsilon=1e-5):
    view = (1, -1, 1, 1)
    return (x - m.reshape(view)) / np.sqrt(v.reshape(view) + epsilon) * s.reshape(view) + b.reshape(view)


def _norm_of_each(x, s, b, m, v, epsilon=0.01):
    return (x - m) / np.sqrt(v + epsilon) * s + b


EACH = [np.abs(numbers(3, 4, 5, seed=seed)) + 0.3 for seed in range(4)]
NORM = [np.abs(numbers(3, seed=seed)) + 0.3 for seed in range(4)]
EMPTY = np.zeros(0, np.float32)
GATES = {"LSTM": 24, "GRU": 18, "RNN": 6}

ROWS = [
    *(_row(op, v, _operands(op), (), {"broadcast": 1, "axis": 1}, lambda x, y, f=f: f(x, y[:, :, None]))
      for op, f in BY_AXIS.items() for v in ((1, 6) if op in ("Add", "Sub", "Mul", "Div") else (1,))),
    *(_row(op, v, [X, (4, 5)], (), {"broadcast": 1}, BY_AXIS[op]) for op in ("Add", "Mul") for v in (1, 6)),
    *(_row(op, v, [X, (4, 5)]) for op in ("Add", "Sub", "Mul", "Div") for v in (7, 13)),
    _row("Equal", 1, [np.arange(24).reshape(2, 3, 4), np.arange(3)], (), {"broadcast": 1, "axis": 1},
         lambda x, y: x == y[:, None]),
    _row("Pow", 1, [np.abs(numbers(*X)), (3,)], (), {"broadcast": 1, "axis": 1}, lambda x, y: x ** y[:, None, None]),
    *(_row(op, v, [(2, 3), (2, 3)]) for op in ("Max", "Min", "Sum", "Mean") for v in (6, 8)),
    _row("Sum", 8, [(2, 3), (3,)]),
    *(_row(op, v) for op in ("Relu", "Elu", "LeakyRelu", "HardSigmoid", "Softplus", "Selu") for v in (6,)),
    _row("Relu", 1, attributes={"consumed_inputs": [0]}, expect=lambda x: np.maximum(x, 0)),
    _row("Selu", 1, expect=lambda x: np.where(x > 0, 1.0507 * x, 1.0507 * (1.6732 * np.exp(x) - 1.6732))),
    *(_row("PRelu", v, [X], [(3,)], {}, lambda x, s: np.where(x < 0, x * s[:, None, None], x)) for v in (1, 6)),
    _row("PRelu", 6, [X], [(1,)], {}, lambda x, s: np.where(x < 0, x * s, x)),
    _row("PRelu", 9, [X], [(3, 1, 1)]),
    _row("Clip", 1, attributes={"min": -0.3, "max": 0.4}, expect=lambda x: x.clip(-0.3, 0.4)),
    _row("Clip", 6, attributes={"max": 0.4}),
    _row("Clip", 6),
    _row("Clip", 11, [X], [np.float32(-0.3)]),
    *(_row(op, v, attributes={"axis": axis})
      for op in ("Softmax", "LogSoftmax", "Hardmax") for v in (1, 11, 13) for axis in (0, 1, 2)),
    *(_row(op, v) for op in ("Softmax", "Hardmax") for v in (1, 11, 13)),
    *(_row("Flatten", v, attributes={"axis": axis}) for v, axis in ((1, 2), (9, 0), (11, -1))),
    _row("Concat", 1, [X, X], expect=lambda x, y: np.concatenate([x, y], 1)),
    _row("Concat", 4, [X, X], attributes={"axis": 2}),
    _row("Reshape", 1, attributes={"shape": [2, -1, 5]}, expect=lambda x: x.reshape(2, -1, 5)),
    _row("Reshape", 5, [X], [np.array([0, 12, -1])]),
    _row("Squeeze", 1, [(1, 3, 1, 5)], attributes={"axes": [0, 2]}),
    _row("Squeeze", 11, [(1, 3, 1, 5)]),
    _row("Unsqueeze", 1, attributes={"axes": [0, 4]}),
    _row("Unsqueeze", 11, attributes={"axes": [-1]}),
    *(_row(op, v, attributes={"axes": [1, 3], "keepdims": 0})
      for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp") for v in (1, 11)),
    *(_row(op, v, attributes={"axis": 2, "keepdims": 0}) for op in ("ArgMax", "ArgMin") for v in (1, 11, 12)),
    _row("TopK", 1, attributes={"axis": 3, "k": 2}, outputs=2),
    _row("TopK", 10, [X], [np.array([2])], {"axis": 2}, outputs=2),
    _row("TopK", 11, [X], [np.array([2])], {"largest": 0}, outputs=2),
    _row("Slice", 1, attributes={"axes": [1, 3], "starts": [0, -3], "ends": [2, 1000]}),
    _row("Slice", 10, [X], [np.array([3, 1]), np.array([0, 3]), np.array([3, 1]), np.array([-1, 1])]),
    _row("Split", 1, [X], [np.array([2.0, 3.0], np.float32)], {"axis": 3}, lambda x, _: x[..., :2], 2),
    _row("Split", 2, attributes={"axis": 3, "split": [1, 4]}, outputs=2),
    _row("Split", 11, attributes={"axis": -3}, outputs=3),
    _row("Pad", 1, attributes={"paddings": [0, 0, 1, 2, 0, 0, 2, 1], "value": 0.5},
         expect=lambda x: np.pad(x, [(0, 0), (0, 0), (1, 2), (2, 1)], constant_values=0.5)),
    _row("Pad", 2, attributes={"pads": [0, 0, 1, -2, 0, 0, -1, 1], "value": 0.5}),
    _row("Pad", 2, attributes={"pads": [0, 0, 1, 2, 0, 0, 2, 1], "mode": "reflect"}),
    _row("Upsample", 1, attributes={"height_scale": 2.0, "width_scale": 3.0}, expect=lambda x: _scaled(x, UP)),
    _row("Upsample", 7, attributes={"scales": [1.0, 1.0, 2.0, 3.0]}),
    *(_row("Upsample", 9, [X], [np.array([1, 1, *scales], np.float32)], {"mode": mode})
      for mode in ("nearest", "linear") for scales in ((2, 3), (2, 1.5))),
    *(_row("Resize", 10, [X], [np.array([1, 1, *scales], np.float32)], {"mode": mode})
      for mode in ("nearest", "linear") for scales in ((2, 2), (1.5, 2.4), (0.5, 0.6))),
    *(_row("Resize", 11, [X], [EMPTY, np.array([1, 1, 1.5, 2.4], np.float32)],
           {"mode": mode, "coordinate_transformation_mode": where, "nearest_mode": "floor"})
      for mode in ("nearest", "linear") for where in ("half_pixel", "asymmetric", "align_corners")),
    _row("Resize", 11, [X], [EMPTY, EMPTY, np.array([2, 3, 7, 6])],
         {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}),
    _row("BatchNormalization", 1, [X], NORM, {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}, _norm),
    _row("BatchNormalization", 6, [X], NORM, {"is_test": 1}, _norm),
    *(_row("BatchNormalization", v, [X], NORM) for v in (7, 9, 14)),
    _row("BatchNormalization", 6, [X], EACH, {"spatial": 0, "epsilon": 0.01, "is_test": 1}, _norm_of_each),
    *(_row("BatchNormalization", v, [X], EACH, {"spatial": 0, "epsilon": 0.01}, _norm_of_each) for v in (7, 8)),
    _row("BatchNormalization", 7, [(5, 3)], NORM, {"spatial": 0, "epsilon": 0.01}, _norm_of_each),
    _row("InstanceNormalization", 6, [X], [(3,), (3,)]),
    *(_row("Dropout", v, attributes={"ratio": 0.3, "is_test": 1}, expect=lambda x: x) for v in (1, 6)),
    *(_row("Dropout", v, attributes={"ratio": 0.3}, expect=lambda x: x) for v in (7, 10)),
    _row("Dropout", 12, outputs=2),
    _row("Gemm", 1, [(3, 4)], [(4, 5), (5,)], {"broadcast": 1, "alpha": 0.5}, lambda a, b, c: 0.5 * (a @ b) + c),
    _row("Gemm", 6, [(3, 4)], [(5, 4), (1,)], {"broadcast": 1, "transB": 1}, lambda a, b, c: a @ b.T + c),
    _row("Gemm", 7, [(3, 4)], [(4, 5), (3, 1)]),
    _row("Gemm", 11, [(4, 3)], [(4, 5)], {"transA": 1}),
    *(_row("AveragePool", v, attributes={"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}) for v in (7, 10)),
    _row("AveragePool", 7, attributes={"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1}),
    _row("MaxPool", 8, attributes={"kernel_shape": [2, 2]}, outputs=2),
    _row("MaxPool", 10, attributes={"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2]}),
    _row("ConvTranspose", 1, [X], [(3, 4, 2, 3)], {"strides": [2, 2], "output_shape": [9, 10]}),
    _row("LpPool", 1, attributes={"kernel_shape": [2, 2], "p": 2.0}),
    _row("GlobalLpPool", 1, attributes={"p": 2.0}, expect=lambda x: np.sqrt((x * x).sum((2, 3), keepdims=True))),
    _row("Cast", 1, attributes={"to": "INT32"}, expect=lambda x: x.astype(np.int32)),
    _row("Cast", 6, attributes={"to": 6}),
    _row("Gather", 1, [X], [np.array([2, 0])], {"axis": 1}),
    _row("Gather", 11, [X], [np.array([-1, 0])], {"axis": -2}),
    _row("Scatter", 9, [(3, 4)], [np.array([[0, 2, 1, 1]]), (1, 4)], {"axis": 0}),
    _row("ScatterElements", 11, [(3, 4)], [np.array([[0, -1, 1, 1]]), (1, 4)]),
    _row("ScatterElements", 16, [(3, 4)], [np.array([[0, -1, 1, 1]]), (1, 4)], {"reduction": "add"}),
    _row("ScatterND", 11, [(3, 4)], [np.array([[0], [2]]), (2, 4)]),
    _row("GatherElements", 11, [(3, 4)], [np.array([[0, -1, 1, 1]])]),
    _row("GatherND", 11, [(3, 4)], [np.array([[0, -1], [1, 1]])]),
    _row("GatherND", 12, [(3, 4)], [np.array([[0], [-1], [1]])], {"batch_dims": 1}),
    _row("Tile", 6, [(2, 3)], [np.array([2, 3])]),
    _row("OneHot", 9, [np.array([0, 2, 1])], [np.array(3), np.array([0, 1], np.float32)]),
    _row("CumSum", 11, [(2, 3)], [np.array(1)]),
    _row("DepthToSpace", 1, [(1, 8, 2, 3)], attributes={"blocksize": 2}),
    _row("QuantizeLinear", 10, [(2, 3)], [np.float32(0.03), np.uint8(120)]),
    _row("GroupNormalization", 21, [(2, 4, 3)], [(4,), (4,)], {"num_groups": 2}),
    _row("GridSample", 16, [X, (2, 3, 2, 2)], attributes={"mode": "bicubic"}),
    *(_row(op, v, [(5, 2, 4)], [(1, GATES[op], 4), (1, GATES[op], 6)], {"hidden_size": 6}, outputs=2)
      for op, v in (("LSTM", 7), ("GRU", 7), ("RNN", 7), ("LSTM", 14), ("GRU", 14))),
    *(_row(op, v, [(5, 2, 4)], [(1, GATES[op], 4), (1, GATES[op], 6)], {"hidden_size": 6, "output_sequence": 1},
           outputs=2, like=7) for op, v in (("LSTM", 1), ("GRU", 3))),
]  # fmt: skip


def wanted(row: Row) -> list[np.ndarray]:
    """What the operator means in its own opset."""
    if row.expect is not None:
        constants = [_array(value, place + 5) for place, value in enumerate(row.constants) if value is not None]
        return [np.asarray(row.expect(*row.feed.values(), *constants))]
    if row.like:
        kept = {name: value for name, value in row.attributes.items() if name != "output_sequence"}
        return wanted(replace(row, opset=row.like, like=0, attributes=kept))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(row.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.Fail):
        return list(onnx.reference.ReferenceEvaluator(row.model).run(None, row.feed))
    return list(session.run(None, row.feed))


@pytest.mark.parametrize("row", ROWS)
def test_means_what_it_meant(row: Row):
    canonical = canonicalize(ir.from_proto(row.model))
    proto = ir.to_proto(canonical)
    case = Case(proto, compile_model(ir.from_proto(proto), Options(input_layout="nchw")))
    ((now, tflite),) = case.both([row.feed])
    for want, *results in zip(wanted(row), now.values(), tflite.values(), strict=False):
        if want is None:
            continue
        for have in results:
            assert have.shape == want.shape
            assert have.dtype == want.dtype or row.expect is not None
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=2e-5)


REFUSALS = [
    (Row("Tile", 1, [(2, 3), np.float32(2), np.float32(1)]), r"it \(Tile-1\): Tile of opset 1"),
    (Row("Crop", 1, attributes={"border": [1, 1, 1, 1]}), r"it \(Crop-1\): an experimental operator"),
    (Row("Dropout", 7, outputs=2), r"it \(Dropout-7\): its mask is used"),
    (Row("Resize", 10, [X], [np.array([1, 1, 0.6, 2.6], np.float32)]), "axes that shrink and axes that grow"),
    (Row("BatchNormalization", 7, [X], NORM, {"spatial": 0}), r"it \(BatchNormalization-7\): spatial=0 with one mean"),
    (
        Row("BatchNormalization", 7, [X], EACH, {"spatial": 0}, outputs=3),
        r"it \(BatchNormalization-7\): spatial=0 with stat",
    ),
    (Row("LpPool", 1, attributes={"kernel_shape": [2, 2], "p": 2.5}), "p 2.5"),
    (
        Row("BatchNormalization", 6, [X], NORM),
        r"it \(BatchNormalization-6\): is_test is 0 or missing: it computes as in",
    ),
    (Row("Dropout", 1, attributes={"is_test": 0}), r"it \(Dropout-1\): is_test is 0 or missing"),
    *(
        (
            Row("Add", 6, [x], [k], {"broadcast": 1, "axis": axis}),
            rf"it \(Add\): axis {axis} does not fit: .* {ranks} axes",
        )
        for x, k, axis, ranks in (
            (X, (3,), 9, "4 and 1"),
            (X, (3,), -5, "4 and 1"),
            (X, (4, 5), 3, "4 and 2"),
            ((), (1,), 0, "0 and 1"),
        )
    ),
]


@pytest.mark.parametrize(("row", "reason"), REFUSALS, ids=[row.op for row, _ in REFUSALS])
def test_what_has_no_later_form_is_refused(row: Row, reason: str):
    with pytest.raises(Unsupported, match=reason):
        canonicalize(ir.from_proto(row.model))


def test_an_export_runs_a_source_that_onnx_runtime_is_too_new_for(tmp_path):
    """Broadcast by an attribute, as exporters of opset 6 wrote it, from the file to the delivered one."""
    row = Row("Add", 6, inputs=(X,), constants=((3,),), attributes={"broadcast": 1, "axis": 1})
    proto = row.model
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(proto, tmp_path / "old.onnx")
    result = convertkit.export(tmp_path / "old.onnx", "onnxruntime", output=tmp_path / "out")
    (x,), k = row.feed.values(), _array((3,), 5)
    (got,) = ort.InferenceSession(str(result.artifact.path)).run(None, row.feed)
    np.testing.assert_array_equal(got, x + k[:, None, None])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert any("operators as in opset 7" in note for note in report["notes"])


def test_nodes_without_names_and_shapes_are_broadcast_one_behind_the_other(tmp_path):
    """What is behind a node that is not valid yet has no shape in the file, and names made of none would be alike."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Squeeze", ["p"], ["q"], axes=[2, 3]),
        helper.make_node("Less", ["x", "k"], ["l"], broadcast=1, axis=1),
        helper.make_node("Cast", ["l"], ["c"], to="FLOAT"),
        helper.make_node("Add", ["x", "k"], ["a"], broadcast=1, axis=1),
        helper.make_node("Mul", ["a", "q"], ["m"], broadcast=1, axis=0),
        helper.make_node("Sub", ["m", "k"], ["s"], broadcast=1, axis=-3),
        helper.make_node("Add", ["s", "c"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, X)
    made = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("y", "a")]
    graph = helper.make_graph(nodes, "g", [given], made, [numpy_helper.from_array(_array((3,), 5), "k")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 5)]), tmp_path / "old.onnx")
    result = convertkit.export(tmp_path / "old.onnx", "onnxruntime", output=tmp_path / "out")
    x, k = _array(X, 0), _array((3,), 5)[:, None, None]
    y, a = ort.InferenceSession(str(result.artifact.path)).run(None, {"x": x})
    np.testing.assert_array_equal(a, x + k)
    want = (x + k) * x.mean((2, 3))[:, :, None, None] - k + (x < k)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", [Row("Relu", 7), Row("Tile", 5, constants=(np.int64(2), np.int64(1)))])
def test_what_opset_7_runs_or_lacks_stays_as_it_is(row: Row, tmp_path):
    proto = row.model
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(proto, tmp_path / "model.onnx")
    assert as_seven.session(tmp_path / "model.onnx", ort.SessionOptions()) is None


_NUMBERED = ("Clip <min = -0.5, max = 0.75>", "Clip <max = 0.5>", "Pad <pads = [0, 1, 0, 1], value = 0.25>")
_TYPED = [(6, "float16", "onnxruntime"), (10, "float16", "tflite"), (10, "double", "onnxruntime")]


@pytest.mark.parametrize("node", _NUMBERED)
@pytest.mark.parametrize(("opset", "kind", "target"), _TYPED)
def test_numbers_have_the_type_of_the_data(tmp_path, opset: int, kind: str, target: str, node: str):
    """Attributes are float32, and inputs since opset 11: half-precision MobileNets of that time have such Clips."""
    text = (
        f'<ir_version: 4, opset_import: ["" : {opset}]> g ({kind}[2,4] x) => (float[2,N] y)'
        f" {{ h = Neg (x) c = {node} (h) y = Cast <to = 1> (c) }}"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "old.onnx")
    done = convertkit.export(tmp_path / "old.onnx", target, output=tmp_path / "out")
    x = np.array([[0.25, -2, 3, 0.125], [1, -0.25, -0.75, 0]], np.float16 if kind == "float16" else np.float64)
    low = -0.5 if "min" in node else -np.inf
    right = np.clip(-x, low, 0.75 if "min" in node else 0.5)
    if "Pad" in node:
        right = np.pad(-x, ((0, 0), (1, 1)), constant_values=0.25)
    np.testing.assert_array_equal(done.run({"x": x})["y"], right.astype(np.float32))
