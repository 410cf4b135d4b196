"""Whether LiteRT runs sparse 1 × 1 convolutions faster here: ``sparse_tflite.py MODEL.tflite [--share 0.8]``.

Of a float32 file most weights of 1 × 1 convolutions become zero, once in dense tensors and once in sparse ones, which a
DENSIFY in front of each convolution reads: XNNPACK's delegate takes that as a request for its sparse kernels.  Both run
in turns on one thread; outputs are compared.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import zlib
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

ROUNDS = 200


def opened(path: Path) -> schema.ModelT:
    """The file as objects."""
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes()))


def written(model: schema.ModelT) -> bytes:
    """The objects as a file."""
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def weights(model: schema.ModelT) -> list[tuple[schema.OperatorT, schema.TensorT, np.ndarray]]:
    """The 1 × 1 convolutions with their weights, (filters, 1, 1, channels)."""
    graph, found = model.subgraphs[0], []
    for operator in graph.operators:
        if model.operatorCodes[operator.opcodeIndex].builtinCode != schema.BuiltinOperator.CONV_2D:
            continue
        tensor = graph.tensors[operator.inputs[1]]
        if tuple(tensor.shape[1:3]) == (1, 1) and tensor.type == schema.TensorType.FLOAT32:
            data = bytes(model.buffers[tensor.buffer].data)
            found.append((operator, tensor, np.frombuffer(data, np.float32).reshape(tensor.shape).copy()))
    return found


def pruned(model: schema.ModelT, share: float) -> schema.ModelT:
    """A copy whose smallest weights of each 1 × 1 convolution are zero."""
    made = copy.deepcopy(model)
    for _, tensor, array in weights(made):
        limit = np.quantile(np.abs(array), share)
        array[np.abs(array) < limit] = 0
        made.buffers[tensor.buffer].data = np.frombuffer(array.tobytes(), np.uint8)
    return made


def sparse(model: schema.ModelT) -> schema.ModelT:
    """A copy that stores these weights by rows of the channels that are not zero, and makes them dense by DENSIFY."""
    made = copy.deepcopy(model)
    graph = made.subgraphs[0]
    code = schema.OperatorCodeT()
    code.builtinCode = schema.BuiltinOperator.DENSIFY
    code.deprecatedBuiltinCode = schema.BuiltinOperator.DENSIFY
    made.operatorCodes.append(code)
    new = []
    for operator, tensor, array in weights(made):
        rows = array.reshape(array.shape[0], -1)
        kept = [np.flatnonzero(row) for row in rows]
        dense = copy.deepcopy(tensor)
        dense.name, dense.buffer = tensor.name + b"/dense", 0
        graph.tensors.append(dense)
        tensor.sparsity = _parameters(array.shape, kept)
        made.buffers[tensor.buffer].data = np.frombuffer(rows[rows != 0].tobytes(), np.uint8)
        step = schema.OperatorT()
        step.opcodeIndex = len(made.operatorCodes) - 1
        step.inputs, step.outputs = [operator.inputs[1]], [len(graph.tensors) - 1]
        operator.inputs[1] = len(graph.tensors) - 1
        new.append(step)
    graph.operators = [*new, *graph.operators]
    return made


def _parameters(shape: tuple[int, ...], kept: list[np.ndarray]) -> schema.SparsityParametersT:
    """Three dense axes, and the channels as segments and indices."""
    found = schema.SparsityParametersT()
    found.traversalOrder, found.dimMetadata = list(range(4)), []
    for axis, size in enumerate(shape):
        each = schema.DimensionMetadataT()
        if axis < 3:
            each.format, each.denseSize = schema.DimensionType.DENSE, int(size)
        else:
            each.format = schema.DimensionType.SPARSE_CSR
            segments = np.concatenate([[0], np.cumsum([len(row) for row in kept])])
            each.arraySegmentsType, each.arraySegments = _numbers(segments)
            each.arrayIndicesType, each.arrayIndices = _numbers(np.concatenate(kept))
        found.dimMetadata.append(each)
    return found


def _numbers(values: np.ndarray) -> tuple[int, object]:
    if values.max(initial=0) < 1 << 16:
        vector = schema.Uint16VectorT()
        vector.values = values.astype(np.uint16)
        return schema.SparseIndexVector.Uint16Vector, vector
    wide = schema.Int32VectorT()
    wide.values = values.astype(np.int32)
    return schema.SparseIndexVector.Int32Vector, wide


def loaded(content: bytes) -> Interpreter:
    """One thread, with XNNPACK."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--share", type=float, default=0.8)
    asked = parser.parse_args()
    dense = pruned(opened(asked.model), asked.share)
    files = {"dense": written(dense), "sparse": written(sparse(dense))}
    for name, content in files.items():
        print(f"{name:7s} {len(content):10,d} bytes, deflated {len(zlib.compress(content, 9)):10,d}")
    runs = {name: loaded(content) for name, content in files.items()}
    entry = runs["dense"].get_input_details()[0]
    x = np.random.default_rng(0).normal(0, 1, entry["shape"]).astype(np.float32)
    times: dict[str, list[float]] = {name: [] for name in runs}
    answers = {}
    for _ in range(ROUNDS):
        for name, interpreter in runs.items():
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
            begun = time.perf_counter()
            interpreter.invoke()
            times[name].append(1000 * (time.perf_counter() - begun))
            answers[name] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).copy()
    error = np.abs(answers["dense"] - answers["sparse"]).max() / np.abs(answers["dense"]).max()
    ratio = np.median(np.array(times["dense"]) / np.array(times["sparse"]))
    print({name: f"{np.median(each):.2f} ms" for name, each in times.items()}, f"{ratio:.2f} ×, error {error:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
