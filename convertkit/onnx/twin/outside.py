"""Operators that someone else computes in double: ONNX Runtime's double kernels, else ONNX's reference evaluator.

Each node is a model of its own with double operands.  A result that comes back as float32 was not computed in double
and does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.onnxruntime_compat import ERRORS
from convertkit.onnx.twin.call import Call, Results
from convertkit.onnx.twin.types import result_type
from convertkit.onnx.twin.values import UNIT, Tensor, Value, real

ORT_OPSET = 26
"""The newest opset of the default domain that ONNX Runtime loads."""
_QUIET = 4
_IR_VERSION = 13
_NEW_MODES = {b"bilinear": b"linear", b"bicubic": b"cubic"}
_NEW_MODES_SINCE = 20
"""GridSample.  Source: ONNX operators' changelog, GridSample-16 and GridSample-20."""
_TAPS = {"linear": 4, "bilinear": 4, "cubic": 16, "bicubic": 16}
"""Pixels that a sample of an image is a sum of, by mode."""
_TYPES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "precision")
Arrays = list[Array]
Compute = Callable[[Mapping[str, Array]], Arrays]
Make = Callable[[onnx.ModelProto], Compute]


_REFUSALS: tuple[type[Exception], ...] = (
    *ERRORS,
    NotImplementedError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    ArithmeticError,
)
"""What ONNX Runtime and the evaluator say to a node that they cannot compute in double."""


class Outside:
    """Runs single nodes; what has been built for one of them serves all that are equal."""

    def __init__(self) -> None:
        self._built: dict[bytes, Compute] = {}
        self._known: dict[tuple[ir.Node, tuple[object, ...]], Compute] = {}

    def run(self, call: Call) -> Results:
        """The results in double with the model's types, rounded; ``Unsupported`` where nobody has a double kernel."""
        feed = {f"in{i}": value.array for i, value in enumerate(call.inputs) if isinstance(value, Tensor)}
        if _samples(call.node):
            feed["in1"] = _coordinates(call, feed["in1"])
        arrays = self._arrays(call, feed)
        places = [place for place, value in enumerate(call.node.outputs) if value.name]
        results: list[Value] = [None] * len(call.node.outputs)
        for place, array in zip(places, arrays, strict=True):
            results[place] = _value(call, array, result_type(call, array, place))
        return results

    def _arrays(self, call: Call, feed: Mapping[str, Array]) -> Arrays:
        key = call.node, tuple((name, array.dtype, array.ndim) for name, array in feed.items())
        if key not in self._known:
            self._known[key] = self._compute(call, feed)
        try:
            return self._known[key](feed)
        except _REFUSALS as error:
            raise Unsupported(f"its double kernel fails: {_brief(error)}", subject=call.title) from error

    def _compute(self, call: Call, feed: Mapping[str, Array]) -> Compute:
        model = _single(call, feed)
        key = model.SerializeToString(deterministic=True)
        if key in self._built:
            return self._built[key]
        reasons = []
        for make in (_onnxruntime, _reference):
            try:
                compute = make(model)
                arrays = compute(feed)
            except _REFUSALS as error:
                reasons.append(f"{make.__name__[1:]}: {_brief(error)}")
                continue
            if all(array.dtype != np.float32 for array in arrays):
                self._built[key] = compute
                return compute
            reasons.append(f"{make.__name__[1:]} computes it in float32")
        raise Unsupported(f"nothing computes it in double ({'; '.join(reasons)})", subject=call.title)


def _samples(node: ir.Node) -> bool:
    return node.op_type == "GridSample" and not node.domain


def _coordinates(call: Call, grid: Array) -> Array:
    """A grid as kernels round it: three times from [-1, 1] to pixels, ``((g + 1) * size - 1) / 2``."""
    return call.step(grid + 1.0, terms=9.0) - 1.0


def _brief(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _value(call: Call, array: Array, dtype: ir.DataType) -> Value:
    terms = _TAPS.get(call.text("mode", "linear"), 1) if _samples(call.node) else 1
    return real(call.step(array, terms, dtype), dtype) if dtype in UNIT else Tensor(array, dtype)


def _single(call: Call, feed: Mapping[str, Array]) -> onnx.ModelProto:
    """The node as a model whose inputs are ``in0``, ``in1`` … and whose floats are doubles."""
    node = ir.to_proto(call.node)
    assert isinstance(node, onnx.NodeProto)
    node.ClearField("metadata_props")
    node.name, node.doc_string = "", ""
    node.input[:] = [f"in{i}" if f"in{i}" in feed else "" for i in range(len(call.inputs))]
    node.output[:] = [f"out{i}" if name else "" for i, name in enumerate(node.output)]
    for attribute in node.attribute:
        attribute.doc_string = ""
        _widen(attribute)
    versions = dict(call.opsets)
    if _samples(call.node):
        _name_modes_anew(node)
        versions[""] = max(versions.get("", 1), _NEW_MODES_SINCE)
    inputs = [_declared(name, array) for name, array in feed.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _name_modes_anew(node: onnx.NodeProto) -> None:
    """GridSample-20 renamed modes and changed nothing of them; only kernels of that version compute in double."""
    for attribute in node.attribute:
        if attribute.name == "mode":
            attribute.s = _NEW_MODES.get(attribute.s, attribute.s)


def _widen(attribute: onnx.AttributeProto) -> None:
    if attribute.name in _TYPES and attribute.type == onnx.AttributeProto.INT and attribute.i in list(UNIT):
        attribute.i = int(ir.DataType.DOUBLE)
    elif attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type in list(UNIT):
        attribute.t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(attribute.t).astype(np.float64)))


def _declared(name: str, array: Array) -> onnx.ValueInfoProto:
    dtype = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
    return onnx.helper.make_tensor_value_info(name, int(dtype), [None] * array.ndim)


def _onnxruntime(model: onnx.ModelProto) -> Compute:
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # hundreds of sessions, each with its own threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feed: [np.asarray(each) for each in session.run(None, dict(feed))]


def _reference(model: onnx.ModelProto) -> Compute:
    import onnx.reference

    evaluator = onnx.reference.ReferenceEvaluator(model)

    def compute(feed: Mapping[str, Array]) -> Arrays:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(each) for each in evaluator.run(None, dict(feed))]

    return compute
