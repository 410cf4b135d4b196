"""Each operator of a file alone: fed what LiteRT computed before it, compared with what LiteRT computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import Signature, Subgraph, TFLiteModel, read_model
from convertkit.onnx.canonical import canonicalize


@dataclass(frozen=True)
class Departure:
    """Largest difference of one operator: in integer steps for quantized results, else relative."""

    builtin: str
    name: str
    size: float
    quantized: bool


def session(model: ir.Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)


def random_feed(info: dict, rng: np.random.Generator) -> np.ndarray:
    kind = np.dtype(info["dtype"])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, info["shape"], endpoint=True).astype(kind)
    return rng.standard_normal(info["shape"]).astype(kind)


def all_tensors(path: Path, seed: int) -> Interpreter:
    """An interpreter after one call that keeps every intermediate tensor; kernels without delegates."""
    interpreter = Interpreter(
        str(path), num_threads=1, experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )  # fmt: skip
    interpreter.allocate_tensors()
    rng = np.random.default_rng(seed)
    for info in interpreter.get_input_details():
        interpreter.set_tensor(info["index"], random_feed(info, rng))
    interpreter.invoke()
    return interpreter


def departures(path: Path, seed: int = 0) -> list[Departure]:
    model, interpreter = read_model(path), all_tensors(path, seed)
    graph = model.subgraphs[0]
    found = []
    for op in graph.operators:
        data = [i for i in dict.fromkeys(op.inputs) if i >= 0 and graph.tensors[i].data is None]
        inputs = [i for i in data if not graph.tensors[i].is_variable]
        alone = Subgraph("", graph.tensors, tuple(inputs), op.outputs, (op,))
        names = [tuple((f"t{i}", i) for i in each) for each in (inputs, op.outputs)]
        signature = Signature("", names[0], names[1], 0)
        subgraphs = (alone, *model.subgraphs[1:])
        runner = session(canonicalize(to_onnx(TFLiteModel(subgraphs, (signature,), {}), signature)))
        feed = {f"t{i}": np.asarray(interpreter.get_tensor(i)) for i in inputs}
        for index, got in zip(op.outputs, runner.run(None, feed), strict=True):
            expected, info = interpreter.get_tensor(index), graph.tensors[index]
            assert got.dtype == expected.dtype, (op.builtin, got.dtype, expected.dtype)
            assert got.shape == expected.shape, (op.builtin, got.shape, expected.shape)
            size = float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max(initial=0))
            quantized = info.quantization is not None and expected.dtype.kind in "iu"
            scale = 1.0 if expected.dtype.kind in "iub" else max(float(np.abs(expected).max(initial=0)), 1e-6)
            found.append(Departure(op.builtin, info.name, size / scale, quantized))
    return found
