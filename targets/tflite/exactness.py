"""Hold every integer operator of a compiled model against ONNX Runtime, fed the same integers.

    python -m convertkit.targets.tflite.exactness MODEL.onnx FEEDS.npz [--samples N] [--reference]

ONNX Runtime executes the QDQ graph (optimisations off) and gives the integers between operators.
Each operator of the TFLite program is then run alone on ONNX Runtime's integers, in LiteRT with XNNPACK
or with the reference kernels.  An operator is right when every element is within one LSB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from convertkit.artifact import Array
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.graph import Operation, Program, Subgraph
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.writer import Signature, write_model

_HALF = 128


@dataclass(frozen=True, slots=True)
class Finding:
    """One operator's departure: the largest, in LSB, and the share of elements that depart at all and by more than one."""

    code: str
    output: str
    elements: int
    largest: int
    differing: float
    beyond_one: float


@dataclass(frozen=True, slots=True)
class _Piece:
    """Operations that compute one known integer tensor from known ones."""

    operations: tuple[Operation, ...]
    inputs: tuple[Tensor, ...]
    output: Tensor


def check(model: ir.Model, feeds: Sequence[Mapping[str, Array]], options: Options, *, reference: bool) -> list[Finding]:
    """Findings for every integer operator, in the program's order, over all feeds."""
    proto = ir.to_proto(model)
    compiled = compile_model(model, options)
    program = compiled.program
    known = {value.name for value in _integer_values(proto)}
    pieces = list(_pieces(program, known | {spec.name for spec in compiled.inputs}))
    wanted = sorted({program.name_of(t) for piece in pieces for t in (*piece.inputs, piece.output)} & known)
    session = _session(proto, wanted)
    found = []
    results = [dict(zip(wanted, session.run(wanted, dict(feed)), strict=True)) for feed in feeds]
    values = [{**dict(feed), **result} for feed, result in zip(feeds, results, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        for place, piece in enumerate(pieces):
            path = Path(folder) / f"{place}.tflite"
            _write(program, piece, path)
            found.append(_finding(program, piece, path, values, reference))
    return found


def _integer_values(proto: object) -> Iterator[object]:
    seen = set()
    for node in proto.graph.node:  # type: ignore[attr-defined]
        if node.op_type == "QuantizeLinear":
            seen.add(node.output[0])
    from onnx import TensorProto, helper

    for name in sorted(seen):
        yield helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)


def _session(proto: object, wanted: Sequence[str]) -> ort.InferenceSession:
    from onnx import ModelProto, helper

    assert isinstance(proto, ModelProto)
    already = {output.name for output in proto.graph.output}
    copy = ModelProto()
    copy.CopyFrom(proto)
    copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted if name not in already)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _pieces(program: Program, known: set[str]) -> Iterator[_Piece]:
    """Cut the program at tensors that ONNX Runtime gives; float stretches are left out."""
    made = {result: operation for operation in program.subgraphs[0].operations for result in operation.outputs}
    for operation in program.subgraphs[0].operations:
        for output in operation.outputs:
            if program.names.get(output) in known and output.is_quantized:
                piece = _piece(program, known, made, output)
                if piece is not None:
                    yield piece


def _piece(program: Program, known: set[str], made: Mapping[Tensor, Operation], output: Tensor) -> _Piece | None:
    operations: list[Operation] = []
    inputs: dict[Tensor, None] = {}
    pending = [output]
    while pending:
        operation = made.get(pending.pop())
        if operation is None or operation in operations:
            continue
        operations.append(operation)
        for tensor in operation.inputs:
            if tensor is None or tensor.constant is not None:
                continue
            if program.names.get(tensor) in known:
                inputs[tensor] = None
            elif tensor.is_quantized or operation.code in ("QUANTIZE", "PAD", "PADV2"):
                pending.append(tensor)
            else:
                return None
    order = {operation: place for place, operation in enumerate(program.subgraphs[0].operations)}
    return _Piece(tuple(sorted(operations, key=lambda each: order[each])), tuple(inputs), output)


def _write(program: Program, piece: _Piece, path: Path) -> None:
    subgraph = Subgraph("main", list(piece.inputs), [piece.output], list(piece.operations))
    part = Program([subgraph], {t: program.name_of(t) for t in (*piece.inputs, piece.output)})
    signature = Signature({program.name_of(t): t for t in piece.inputs}, {program.name_of(piece.output): piece.output})
    write_model(part, signature, path, metadata={}, description="one operator")


def _finding(
    program: Program, piece: _Piece, path: Path, values: Sequence[Mapping[str, Array]], reference: bool
) -> Finding:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_path=str(path), num_threads=1, experimental_op_resolver_type=kind)
    places = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    differences = []
    for value in values:
        arrays = {program.name_of(t): _stored(program, t, value[program.name_of(t)]) for t in piece.inputs}
        for name, array in arrays.items():
            interpreter.resize_tensor_input(places[name], array.shape)
        interpreter.allocate_tensors()
        for name, array in arrays.items():
            interpreter.set_tensor(places[name], array)
        interpreter.invoke()
        result = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).astype(np.int64)
        name = program.name_of(piece.output)
        expected = _stored(program, piece.output, value[name]).astype(np.int64)
        differences.append(np.abs(result - expected).reshape(-1))
    gap = np.concatenate(differences)
    code = "+".join(operation.code for operation in piece.operations)
    name = program.name_of(piece.output)
    return Finding(code, name, gap.size, int(gap.max(initial=0)), float((gap > 0).mean()), float((gap > 1).mean()))


def _stored(program: Program, tensor: Tensor, value: Array) -> Array:
    """ONNX Runtime's value as the program stores it: axes moved, unsigned bytes made signed."""
    order = program.orders.get(program.name_of(tensor))
    value = value.transpose(order) if order else value
    if tensor.dtype == "int8" and value.dtype == np.uint8:
        value = (value.astype(np.int16) - _HALF).astype(np.int8)
    return np.ascontiguousarray(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; 0 when every operator is within one LSB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("feeds", type=Path, help=".npz with arrays named after the inputs, samples along axis 0")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--reference", action="store_true", help="the reference kernels instead of XNNPACK")
    parser.add_argument("--full-integer", action="store_true")
    chosen = parser.parse_args(arguments)
    model = canonicalize(load_model(chosen.model))
    arrays = np.load(chosen.feeds)
    names = [value.name for value in model.graph.inputs]
    feeds = [{name: arrays[name][place : place + 1] for name in names} for place in range(chosen.samples)]
    found = check(model, feeds, Options(full_integer=chosen.full_integer), reference=chosen.reference)
    for each in found:
        print(f"{each.largest:4d} {each.differing:9.4%} {each.beyond_one:9.4%}  {each.code}  {each.output}")
    worst = max((each.largest for each in found), default=0)
    print(f"{len(found)} integer operators, largest difference {worst} LSB")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
