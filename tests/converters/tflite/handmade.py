"""Files of one operator, written with the runtime's own schema classes, and what LiteRT makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import read_model
from convertkit.onnx.canonical import canonicalize

_KINDS = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "int64": "INT64", "int16": "INT16", "int8": "INT8",
    "uint8": "UINT8", "bool": "BOOL", "uint32": "UINT32", "resource": "RESOURCE", "uint16": "UINT16",
}  # fmt: skip


@dataclass(frozen=True)
class T:
    """One tensor: an input or result of ``shape``, a constant of ``value``, or a variable."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    value: np.ndarray | None = None
    scale: float | Sequence[float] | None = None
    zero: int = 0
    variable: bool = False
    axis: int = 0
    sparsity: object = None


def const(value: object, dtype: str = "float32", scale: float | Sequence[float] | None = None, axis: int = 0) -> T:
    array = np.asarray(value, dtype)
    return T(array.shape, dtype, array, scale, 0, False, axis)


def write(
    path: Path,
    builtin: str,
    inputs: Sequence[T | None],
    outputs: Sequence[T],
    options: Mapping[str, object] | None = None,
    options_name: str = "",
    *,
    intermediates: Sequence[T] = (),
    custom: str = "",
    custom_options: bytes = b"",
) -> Path:
    """A file whose only operator is ``builtin``; inputs without a value are the graph's inputs."""
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers = 3, [schema.BufferT()]
    graph.tensors, graph.name = [], "main"
    places = [_add(model, graph, each, f"in{n}") for n, each in enumerate(inputs)]
    results = [_add(model, graph, each, f"out{n}") for n, each in enumerate(outputs)]
    op, code = schema.OperatorT(), schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, builtin)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    if custom:
        code.customCode = custom.encode()
        op.customOptions = list(custom_options)
    op.inputs, op.outputs = places, results
    op.intermediates = [_add(model, graph, each, f"mid{n}") for n, each in enumerate(intermediates)]
    if options_name:
        table = getattr(schema, f"{options_name}T")()
        for name, value in (options or {}).items():
            setattr(table, name, value)
        op.builtinOptionsType, op.builtinOptions = getattr(schema.BuiltinOptions, options_name), table
    free = [n for n, each in zip(places, inputs, strict=True) if each and each.value is None and not each.variable]
    graph.inputs, graph.outputs, graph.operators = free, results, [op]
    model.subgraphs, model.operatorCodes = [graph], [code]
    made = flatbuffers.Builder(1024)
    made.Finish(model.Pack(made), b"TFL3")
    path.write_bytes(bytes(made.Output()))
    return path


def _add(model: object, graph: object, each: T | None, name: str) -> int:
    if each is None:
        return -1
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type = (
        name.encode(),
        list(each.shape),
        getattr(schema.TensorType, _KINDS[each.dtype]),
    )
    tensor.isVariable, tensor.buffer = each.variable, 0
    tensor.hasRank = True
    if each.value is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(each.value.tobytes(), np.uint8)
        tensor.buffer = len(model.buffers)
        model.buffers.append(buffer)
    tensor.sparsity = each.sparsity
    if each.scale is not None:
        scales = np.atleast_1d(np.asarray(each.scale, np.float32))
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale = scales
        tensor.quantization.zeroPoint = np.full(scales.shape, each.zero, np.int64)
        tensor.quantization.quantizedDimension = each.axis
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def litert(path: Path, feed: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What LiteRT's plain kernels compute."""
    interpreter = Interpreter(
        str(path), num_threads=1, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    details = interpreter.get_input_details()
    for info, value in zip(details, feed, strict=True):
        interpreter.resize_tensor_input(info["index"], value.shape)
    interpreter.allocate_tensors()
    interpreter.reset_all_variables()
    for info, value in zip(details, feed, strict=True):
        interpreter.set_tensor(info["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(info["index"]) for info in interpreter.get_output_details()]


def ours(path: Path, feed: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes from our reading of the file."""
    from single_ops import session

    model = read_model(path)
    runner = session(canonicalize(to_onnx(model, model.signatures[0])))
    return runner.run(None, {f"in{n}": v for n, v in zip(_numbers(model), feed, strict=True)})


def _numbers(model: object) -> list[int]:
    graph = model.subgraphs[0]
    return [int(graph.tensors[index].name.removeprefix("in")) for index in graph.inputs]
