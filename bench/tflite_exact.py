"""Every quantized operator of a .tflite alone, fed ONNX Runtime's own integers, and the whole: how many LSB apart?

``tflite_exact.py QDQ.onnx MODEL.tflite FEEDS.npz [--samples N]``.  Tensors of both files carry the same names, so the
piece of the TFLite graph between quantized tensors that ONNX knows can be cut out, run (with XNNPACK and
with the reference kernels) on the integers that ONNX Runtime has there, and its result compared with the
integers that ONNX Runtime computes behind it.  Graph optimisations of ONNX Runtime are off: it then computes in
floats what the QDQ graph says.  For the whole model its own integer kernels (optimisations on) are a second opinion:
where they differ from its floats as much as LiteRT does, the model amplifies single roundings.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import onnxruntime
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from measure import ORDERS, TfliteArtifact, feeds

CODES = {value: key for key, value in vars(schema.BuiltinOperator).items() if not key.startswith("_")}
MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
KERNELS = {"xnnpack": OpResolverType.AUTO, "reference": OpResolverType.BUILTIN_REF}


def integers(model_path: Path, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every integer activation of the QDQ graph, by name."""
    model = onnx.load(model_path)
    known = {output.name for output in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
    return executed(model.SerializeToString(), feed, optimised=False)


def executed(model: bytes, feed: dict[str, np.ndarray], *, optimised: bool) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs by name."""
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options)
    names = [output.name for output in session.get_outputs()]
    return dict(
        zip(names, session.run(None, {k: feed[k] for k in (i.name for i in session.get_inputs())}), strict=True)
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Operators from quantized tensors that ONNX knows to one that it knows."""

    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    output: int


class Model:
    """A .tflite as objects, and its pieces."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.flat = schema.ModelT.InitFromPackedBuf(self.content, 0)
        self.graph = self.flat.subgraphs[0]
        self.names = [tensor.name.decode() for tensor in self.graph.tensors]
        self.makers = {out: i for i, op in enumerate(self.graph.operators) for out in op.outputs}

    def code(self, operator: int) -> str:
        code = self.flat.operatorCodes[self.graph.operators[operator].opcodeIndex]
        return CODES[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def is_constant(self, tensor: int) -> bool:
        return tensor not in self.makers and tensor not in self.graph.inputs

    def pieces(self, known: set[str]) -> list[Piece]:
        found = []
        for operator in range(len(self.graph.operators)):
            for out in self.graph.operators[operator].outputs:
                if self.names[out] in known and self.graph.tensors[out].quantization is not None:
                    piece = self._behind(operator, out, known)
                    if piece is not None:
                        found.append(piece)
        return found

    def _behind(self, operator: int, out: int, known: set[str]) -> Piece | None:
        """The operators that make ``out`` from known integers; None where a float input of the graph is reached."""
        operators, inputs, open_operators = set(), [], [operator]
        while open_operators:
            current = open_operators.pop()
            if current in operators:
                continue
            operators.add(current)
            for source in self.graph.operators[current].inputs:
                if source < 0 or self.is_constant(source):
                    continue
                if self.names[source] in known:
                    if source not in inputs:
                        inputs.append(source)
                elif source in self.makers:
                    open_operators.append(self.makers[source])
                else:
                    return None
        return Piece(tuple(sorted(operators)), tuple(inputs), out)

    def cut(self, piece: Piece) -> bytes:
        """A model of the piece alone."""
        whole = schema.ModelT.InitFromPackedBuf(self.content, 0)
        graph = whole.subgraphs[0]
        graph.operators = [graph.operators[i] for i in piece.operators]
        graph.inputs, graph.outputs = list(piece.inputs), [piece.output]
        used = {t for op in graph.operators for t in (*op.inputs, *op.outputs) if t >= 0}
        buffers = [schema.BufferT()]
        for index, tensor in enumerate(graph.tensors):
            buffer = whole.buffers[tensor.buffer]
            tensor.buffer = 0
            if index in used and buffer.data is not None and len(buffer.data):
                buffers.append(buffer)
                tensor.buffer = len(buffers) - 1
        whole.buffers, whole.subgraphs = buffers, [graph]
        whole.signatureDefs, whole.metadata = [], []
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(whole.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def distances(content: bytes, arrays: list[np.ndarray], wanted: np.ndarray, resolver: OpResolverType) -> np.ndarray:
    """In LSB, for the layout that fits best: shapes alone do not tell where height, width and channels are equal."""
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    (result,) = interpreter.get_output_details()
    found = []
    for last in (False, True):
        for detail, array in zip(details, arrays, strict=True):
            turned = stored(signed(array), tuple(detail["shape"]), last=last)
            interpreter.set_tensor(detail["index"], np.ascontiguousarray(turned).astype(detail["dtype"]))
        interpreter.invoke()
        made = interpreter.get_tensor(result["index"]).astype(np.int64)
        found += [np.abs(made - stored(signed(wanted), made.shape, last=each)) for each in (False, True)]
    return min(found, key=lambda each: (int(each.max(initial=0)), float(each.mean())))


def signed(array: np.ndarray) -> np.ndarray:
    """Unsigned bytes as the signed ones that TFLite's kernels take."""
    return array.astype(np.int64) - 128 if array.dtype == np.uint8 else array.astype(np.int64)


def stored(array: np.ndarray, shape: tuple[int, ...], *, last: bool) -> np.ndarray:
    """``array`` in the given shape; where several orders fit, the source's or (``last``) channels-last."""
    usual = ORDERS.get(array.ndim, [tuple(range(array.ndim))])
    for order in (*(reversed(usual) if last else usual), *itertools.permutations(range(array.ndim))):
        if tuple(array.shape[axis] for axis in order) == shape:
            return array.transpose(order)
    raise SystemExit(f"sample {array.shape} does not fit {shape}")


def whole(qdq: Path, tflite: Path, samples: list[dict[str, np.ndarray]]) -> None:
    """Print the share of outputs within 1 LSB of ONNX Runtime, end to end."""
    model = onnx.load(qdq)
    scales = output_scales(model)
    apart: dict[str, list[np.ndarray]] = {"LiteRT": [], "ONNX Runtime's integer kernels": []}
    runner = TfliteArtifact(tflite)
    for feed in samples:
        truth = executed(model.SerializeToString(), feed, optimised=False)
        again = executed(model.SerializeToString(), feed, optimised=True)
        runner.set(feed)
        runner.invoke()
        found = runner.results(list(truth.values()))
        for name, mine in zip(truth, found, strict=True):
            if name in scales:
                apart["LiteRT"].append(np.rint(np.abs(mine - truth[name]) / scales[name]).reshape(-1))
                other = np.rint(np.abs(again[name] - truth[name]) / scales[name])
                apart["ONNX Runtime's integer kernels"].append(other.reshape(-1))
    for title, values in apart.items():
        if not values:
            print(f"end to end, {title}: no output is quantized")
            continue
        every = np.concatenate(values)
        share = 100 * (every <= 1).mean()
        print(f"end to end, {title}: {share:.2f} % within 1 LSB of ONNX Runtime's floats, max {every.max():.0f}")


def output_scales(model: onnx.ModelProto) -> dict[str, float]:
    """The scale of each output that a DequantizeLinear makes, seen through what only moves data."""
    makers = {output: node for node in model.graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    scales = {}
    for output in model.graph.output:
        node = makers[output.name]
        while node.op_type in MOVES and node.input[0] in makers:
            node = makers[node.input[0]]
        if node.op_type == "DequantizeLinear" and node.input[1] in constants:
            scales[output.name] = float(onnx.numpy_helper.to_array(constants[node.input[1]]).reshape(-1)[0])
    return scales


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("qdq", type=Path)
    parser.add_argument("tflite", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="list also what agrees within 1 LSB")
    args = parser.parse_args()
    samples = feeds(args.data)[: args.samples]
    model = Model(args.tflite)
    worst: dict[str, collections.Counter] = {kernel: collections.Counter() for kernel in KERNELS}
    for feed in samples:
        truth = integers(args.qdq, feed)
        for piece in model.pieces(set(truth)):
            content = model.cut(piece)
            arrays = [truth[model.names[i]] for i in piece.inputs]
            text, bad = [], False
            for kernel, resolver in KERNELS.items():
                distance = distances(content, arrays, truth[model.names[piece.output]], resolver)
                worst[kernel][min(int(distance.max()), 9)] += 1
                text.append(f"{kernel}: max {distance.max()} LSB, {100 * (distance > 0).mean():.3f} % differ")
                bad = bad or distance.max() > 1
            if bad or args.all:
                codes = "+".join(model.code(i) for i in piece.operators)
                print(f"{model.names[piece.output]:40} {codes:40} {'; '.join(text)}", flush=True)
    for kernel, counter in worst.items():
        print(f"{kernel}: {sum(counter.values())} pieces, by largest distance in LSB: {dict(sorted(counter.items()))}")
    whole(args.qdq, args.tflite, samples)
    return int(any(distance > 1 for counter in worst.values() for distance in counter))


if __name__ == "__main__":
    sys.exit(main())
