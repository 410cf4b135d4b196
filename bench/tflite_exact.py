"""Every quantized operator of a .tflite alone, fed ONNX Runtime's own integers, and the whole: how many LSB apart?

``tflite_exact.py QDQ.onnx MODEL.tflite FEEDS.npz [--samples N] [--alone N]``.  Tensors of both files carry the same
names, so the piece of the TFLite graph between quantized tensors that ONNX knows can be cut out, run (with XNNPACK and
with the reference kernels) on the integers that ONNX Runtime has there, and its result compared with the
integers that ONNX Runtime computes behind it.  Graph optimisations of ONNX Runtime are off: it then computes in
floats what the QDQ graph says.  The same piece of the QDQ graph runs with its optimisations on, too: those are the
integer kernels that its users get.  A table by operator tells how many elements each of the three has different, then
how many of the last integers, in front of what is float at the model's end, and the share of outputs within one LSB.
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
ENDS = ("LiteRT against ONNX Runtime's floats", "LiteRT against ONNX Runtime's kernels", "ONNX Runtime against itself")
KERNELS = {"xnnpack": OpResolverType.AUTO, "reference": OpResolverType.BUILTIN_REF}


def with_integers(model_path: Path) -> bytes:
    """The QDQ graph with every integer activation as an output."""
    model = onnx.load(model_path)
    known = {output.name for output in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
    return model.SerializeToString()


def executed(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs by name."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feed[i.name] for i in session.get_inputs()}), strict=True))


def session_of(model: bytes, *, optimised: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options)


@dataclass(frozen=True, slots=True)
class Piece:
    """Operators from quantized tensors that ONNX knows to one that it knows."""

    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    output: int


class Graph:
    """A QDQ graph, and its pieces as models of their own."""

    def __init__(self, path: Path) -> None:
        self.model = onnx.load(path)
        self.makers = {out: node for node in self.model.graph.node for out in node.output}
        self.constants = {tensor.name: tensor for tensor in self.model.graph.initializer}
        self.sessions: dict[str, onnxruntime.InferenceSession] = {}

    def optimised(self, inputs: dict[str, np.ndarray], output: str) -> np.ndarray:
        """What ONNX Runtime's integer kernels make of known integers."""
        if output not in self.sessions:
            self.sessions[output] = session_of(self.cut(inputs, output), optimised=True)
        return self.sessions[output].run([output], inputs)[0]

    def cut(self, inputs: dict[str, np.ndarray], output: str) -> bytes:
        """What makes ``output`` from integers that are known."""
        nodes, wanted = {}, [output]
        while wanted:
            name = wanted.pop()
            if name in self.makers and name not in inputs and name not in nodes:
                nodes[name] = self.makers[name]
                wanted += self.makers[name].input
        kept = [node for node in self.model.graph.node if not nodes.keys().isdisjoint(node.output)]
        used = {name for node in kept for name in node.input}
        declared = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ]
        piece = onnx.helper.make_graph(
            kept,
            "piece",
            declared,
            [onnx.ValueInfoProto(name=output)],
            [tensor for name, tensor in self.constants.items() if name in used],
        )
        opsets, version = self.model.opset_import, self.model.ir_version
        return onnx.helper.make_model(piece, opset_imports=opsets, ir_version=version).SerializeToString()


class Model:
    """A .tflite as objects, and its pieces."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.flat = schema.ModelT.InitFromPackedBuf(self.content, 0)
        self.graph = self.flat.subgraphs[0]
        self.names = [tensor.name.decode() for tensor in self.graph.tensors]
        self.makers = {out: i for i, op in enumerate(self.graph.operators) for out in op.outputs}
        self.interpreters: dict[tuple[Piece, str], Interpreter] = {}

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

    def front(self, known: set[str]) -> tuple[tuple[str, ...], Piece, ...]:
        """What is float at the end, by operator, and for each last tensor of known integers all that makes it."""
        end: set[int] = set()
        last: dict[int, None] = {}
        waiting = list(self.graph.outputs)
        while waiting:
            tensor = waiting.pop()
            if self.names[tensor] in known and self.graph.tensors[tensor].quantization is not None:
                last[tensor] = None
            elif tensor in self.makers:
                end.add(self.makers[tensor])
                waiting += [each for each in self.graph.operators[self.makers[tensor]].inputs if each >= 0]
        pieces = [Piece(self._all_behind(tensor), tuple(self.graph.inputs), tensor) for tensor in last]
        return tuple(self.code(i) for i in sorted(end)), *pieces

    def _all_behind(self, tensor: int) -> tuple[int, ...]:
        found: set[int] = set()
        waiting = [tensor]
        while waiting:
            maker = self.makers.get(waiting.pop())
            if maker is not None and maker not in found:
                found.add(maker)
                waiting += [each for each in self.graph.operators[maker].inputs if each >= 0]
        return tuple(sorted(found))

    def interpreter(self, piece: Piece, kernel: str) -> Interpreter:
        """The piece alone, ready to run."""
        key = piece, kernel
        if key not in self.interpreters:
            resolver = KERNELS[kernel]
            alone = Interpreter(model_content=self.cut(piece), experimental_op_resolver_type=resolver, num_threads=1)
            alone.allocate_tensors()
            self.interpreters[key] = alone
        return self.interpreters[key]

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


def distances(interpreter: Interpreter, arrays: list[np.ndarray], wanted: np.ndarray) -> np.ndarray:
    """In LSB, for the layout that fits best: shapes alone do not tell where height, width and channels are equal."""
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
    """Print the share of outputs within 1 LSB, end to end; of a float output 1/255 of its range counts as one."""
    model = onnx.load(qdq)
    scales = output_scales(model)
    apart: dict[str, list[np.ndarray]] = {title: [] for title in ENDS}
    runner = TfliteArtifact(tflite)
    floats, kernels = (session_of(model.SerializeToString(), optimised=optimised) for optimised in (False, True))
    for feed in samples:
        truth, again = executed(floats, feed), executed(kernels, feed)
        runner.set(feed)
        runner.invoke()
        found = runner.results(list(truth.values()))
        for name, mine in zip(truth, found, strict=True):
            scale = scales.get(name) or float(np.ptp(truth[name])) / 255
            pairs = (mine, truth[name]), (mine, again[name]), (again[name], truth[name])
            for title, (one, other) in zip(ENDS, pairs, strict=True):
                apart[title].append(np.rint(np.abs(one - other) / scale).reshape(-1))
    for title, values in apart.items():
        every = np.concatenate(values)
        same = 100 * np.mean([not value.any() for value in values])
        share = 100 * (every <= 1).mean()
        print(f"end to end, {title}: {share:.2f} % within 1 LSB, max {every.max():.0f}; {same:.0f} % of outputs equal")


def in_front(model: Model, qdq: Path, samples: list[dict[str, np.ndarray]]) -> None:
    """Print how many of the last integers differ from ONNX Runtime's once the model has run from its inputs."""
    content = with_integers(qdq)
    sessions = {title: session_of(content, optimised=each) for title, each in zip(ENDS[:2], (False, True), strict=True)}
    truths = {title: [executed(session, feed) for feed in samples] for title, session in sessions.items()}
    end, *pieces = model.front(set(truths[ENDS[0]][0]))
    print(f"the float end: {' '.join(end)}")
    for piece in pieces:
        alone = model.interpreter(piece, "xnnpack")
        for title, found in truths.items():
            counter: collections.Counter[int] = collections.Counter()
            for feed, truth in zip(samples, found, strict=True):
                distance = from_inputs(alone, model, piece, feed, truth[model.names[piece.output]])
                counter.update(dict(zip(*np.unique(distance, return_counts=True), strict=True)))
            print(f"in front of it, {model.names[piece.output]}, {title}: {counted(counter)}")


def from_inputs(
    interpreter: Interpreter, model: Model, piece: Piece, feed: dict[str, np.ndarray], wanted: np.ndarray
) -> np.ndarray:
    """In LSB; the feed is in the source's layout."""
    for detail, tensor in zip(interpreter.get_input_details(), piece.inputs, strict=True):
        given = stored(feed[model.names[tensor]], tuple(detail["shape"]), last=True)
        interpreter.set_tensor(detail["index"], np.ascontiguousarray(given).astype(detail["dtype"]))
    interpreter.invoke()
    made = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).astype(np.int64)
    found = [np.abs(made - stored(signed(wanted), made.shape, last=each)) for each in (False, True)]
    return min(found, key=lambda each: int(each.sum()))


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
    parser.add_argument("--alone", type=int, help="samples on which every piece runs alone; all of them unless told")
    parser.add_argument("--all", action="store_true", help="list also what agrees within 1 LSB")
    args = parser.parse_args()
    samples = feeds(args.data)[: args.samples]
    model, graph = Model(args.tflite), Graph(args.qdq)
    book: dict[str, dict[str, collections.Counter[int]]] = {}
    tapped = session_of(with_integers(args.qdq), optimised=False)
    for feed in samples[: args.alone]:
        truth = executed(tapped, feed)
        for piece in model.pieces(set(truth)):
            codes = "+".join(model.code(i) for i in piece.operators)
            found = apart(model, graph, piece, truth)
            counters = book.setdefault(codes, {kernel: collections.Counter() for kernel in found})
            for kernel, distance in found.items():
                counters[kernel].update(dict(zip(*np.unique(distance, return_counts=True), strict=True)))
            if args.all or any(distance.max(initial=0) > 1 for distance in found.values()):
                text = [
                    f"{kernel}: max {d.max()} LSB, {100 * (d > 0).mean():.3f} % differ" for kernel, d in found.items()
                ]
                print(f"{model.names[piece.output]:40} {codes:40} {'; '.join(text)}", flush=True)
    report(book)
    in_front(model, args.qdq, samples)
    whole(args.qdq, args.tflite, samples)
    return int(any(distance > 1 for row in book.values() for kernel in KERNELS for distance in row[kernel]))


def apart(model: Model, graph: Graph, piece: Piece, truth: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Distances in LSB of every kernel's results from what the QDQ graph says, for one piece on given integers."""
    given = {model.names[i]: truth[model.names[i]] for i in piece.inputs}
    output = model.names[piece.output]
    arrays = list(given.values())
    found = {kernel: distances(model.interpreter(piece, kernel), arrays, truth[output]) for kernel in KERNELS}
    again = graph.optimised(given, output)
    return {**found, "onnxruntime": np.abs(signed(again) - signed(truth[output]))}


def report(book: dict[str, dict[str, collections.Counter[int]]]) -> None:
    """A line for each operator, then one for each kernel: how many elements differ and by how much at most."""
    total: dict[str, collections.Counter[int]] = {}
    for codes, row in book.items():
        print(f"{codes:40} {'; '.join(f'{kernel}: {counted(counter)}' for kernel, counter in row.items())}")
        for kernel, counter in row.items():
            total.setdefault(kernel, collections.Counter()).update(counter)
    for kernel, counter in total.items():
        print(f"all pieces, {kernel}: {counted(counter)}")


def counted(counter: collections.Counter[int]) -> str:
    size = sum(counter.values())
    return f"{size - counter[0]} of {size} differ, max {max(counter, default=0)} LSB"


if __name__ == "__main__":
    sys.exit(main())
