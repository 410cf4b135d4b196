"""The table of operators, held against the runtime: what it registers, and what it does with their types."""

from __future__ import annotations

import faulthandler
import os
import tempfile
from importlib.metadata import version

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.writer import Signature, write_model
from convertkit.targets.tflite_micro import operators
from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor, read_graphs
from convertkit.targets.tflite_micro.runtime import MicroInterpreter

CODES = {name: code for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
UNREGISTERED = "Didn't find op for builtin opcode"


def complaint(code):
    """What the runtime prints about a model of one operator without inputs and outputs, in a process of its own."""
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers, model.subgraphs = 3, [schema.BufferT()], [graph]
    entry, operator = schema.OperatorCodeT(), schema.OperatorT()
    entry.builtinCode, entry.deprecatedBuiltinCode, entry.version = CODES[code], min(CODES[code], 127), 1
    model.operatorCodes = [entry]
    graph.tensors, graph.inputs, graph.outputs, graph.operators = [], [], [], [operator]
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, [], []
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), b"TFL3")
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            faulthandler.disable()  # pytest's would tell of a crash that is looked for here
            os.dup2(said.fileno(), 2)
            try:
                from tflite_micro import runtime

                runtime.Interpreter(bytes(builder.Output()), [], 1 << 16)
            finally:
                os._exit(0)
        os.waitpid(child, 0)  # it may have crashed: an operator needs its inputs
        said.seek(0)
        return said.read().decode("utf-8", "replace")


def test_the_table_is_of_the_version_that_is_tested():
    assert operators.version() == version("tflite-micro")


def test_the_runtime_registers_every_listed_operator():
    assert len(operators.kernels()) == 96
    assert not [code for code in operators.kernels() if UNREGISTERED in complaint(code)]


def test_the_runtime_registers_no_other_one():
    """But for variables, which need room of their own that a package does not give."""
    variables = {"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"}
    others = CODES.keys() - operators.kernels().keys() - variables - {"CUSTOM", "PLACEHOLDER_FOR_GREATER_OP_CODES"}
    found = [code for code in sorted(others) if CODES[code] < 160 and UNREGISTERED not in complaint(code)]
    assert not found


ONE = {
    "ADD": lambda b, t: b.add(t, t),
    "SUB": lambda b, t: b.sub(t, t),
    "MUL": lambda b, t: b.mul(t, t),
    "DIV": lambda b, t: b.div(t, t),
    "MAXIMUM": lambda b, t: b.maximum(t, t),
    "MINIMUM": lambda b, t: b.minimum(t, t),
    "LESS": lambda b, t: b.less(t, t),
    "EQUAL": lambda b, t: b.equal(t, t),
    "ABS": lambda b, t: b.abs(t),
    "NEG": lambda b, t: b.neg(t),
    "SQUARE": lambda b, t: b.square(t),
    "TRANSPOSE": lambda b, t: b.transpose(t, (1, 0)),
    "RESHAPE": lambda b, t: b.reshape(t, (4, 3)),
    "SLICE": lambda b, t: b.slice(t, (1, 1), (2, 2)),
    "STRIDED_SLICE": lambda b, t: b.strided_slice(t, (2, 0), (0, 4), (-1, 2), (2, 2)),
    "CONCATENATION": lambda b, t: b.concatenation([t, t], 0),
    "PACK": lambda b, t: b.pack([t, t], 0),
    "UNPACK": lambda b, t: b.unpack(t, 0)[1],
    "SPLIT": lambda b, t: b.split(t, 1, (2, 2))[1],
    "SPLIT_V": lambda b, t: b.split(t, 1, (1, 3))[1],
    "PAD": lambda b, t: b.pad(t, ((1, 0), (0, 2))),
    "MIRROR_PAD": lambda b, t: b.mirror_pad(t, ((1, 0), (0, 2)), symmetric=False),
    "BROADCAST_TO": lambda b, t: b.broadcast_to(t, (2, 3, 4)),
    "GATHER": lambda b, t: b.gather(t, b.ints((2, 0)), 0),
    "REVERSE_V2": lambda b, t: b.reverse(t, (1,)),
    "SUM": lambda b, t: b.sum(t, (1,), keep_dims=False),
    "MEAN": lambda b, t: b.mean(t, (1,), keep_dims=False),
    "REDUCE_MAX": lambda b, t: b.reduce_max(t, (1,), keep_dims=False),
    "CUMSUM": lambda b, t: b.cumsum(t, 1, exclusive=False, reverse=False),
    "ZEROS_LIKE": lambda b, t: b.zeros_like(t),
    "SELECT_V2": lambda b, t: b.select(b.constant(np.tri(3, 4) > 0), t, t),
    "BATCH_MATMUL": lambda b, t: b.batch_matmul(t, b.transpose(t, (1, 0))),
    "TILE": lambda b, t: b.tile(t, (2, 3)),
    "SIGN": lambda b, t: b.sign(t),
}
TYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
SCALED = ("int8", "int16", "uint8")
"""Types that arithmetic takes with a scale alone: their rows are run by the models of test_models.py."""
MOVES = {
    *("TRANSPOSE", "RESHAPE", "SLICE", "STRIDED_SLICE", "CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "PAD"),
    *("MIRROR_PAD", "BROADCAST_TO", "GATHER", "REVERSE_V2", "ZEROS_LIKE", "SELECT_V2", "MAXIMUM", "MINIMUM"),
}


def written(code, dtype, folder):
    program = Program()
    graph = program.subgraphs[program.new_subgraph("main")]
    tensor = Tensor("x", (3, 4), dtype)
    graph.inputs = [tensor]
    graph.outputs = [ONE[code](Builder(program, graph), tensor)]
    path = folder / f"{code}-{dtype}.tflite"
    write_model(program, Signature({"x": tensor}, {"y": graph.outputs[0]}), path, metadata={}, description="")
    return path.read_bytes()


def runs(model, dtype):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            MicroInterpreter(model, 1 << 16).run([np.ones((3, 4), dtype)])
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("code", "dtype"), [("ADD", "int8"), ("ADD", "int16"), ("MUL", "int8"), ("MUL", "int16")])
def test_plain_numbers_are_refused_where_the_runtime_wants_a_scale(code, dtype, tmp_path):
    """The check of a model and its export say the same, without the runtime: ADD does not run, MUL rounds otherwise."""
    model = written(code, dtype, tmp_path)
    with pytest.raises(Unsupported, match=f"computes {dtype} with a scale alone, and x holds plain numbers"):
        operators.check(read_graphs(model), {})
    assert runs(model, dtype) == (code == "MUL")


@pytest.mark.parametrize("code", ONE)
def test_the_runtime_computes_the_listed_types_and_no_other(code, tmp_path):
    for dtype in TYPES:
        if dtype in SCALED and code not in MOVES:
            continue
        try:
            model = written(code, dtype, tmp_path)
        except Unsupported:
            continue  # no kernel of LiteRT's takes it, so no file has it
        try:
            operators.check(read_graphs(model), {})
            allowed = True
        except Unsupported:
            allowed = False
        assert runs(model, dtype) == allowed, dtype


def tensor(dtype, channels=0, shape=(4, 4)):
    return FileTensor("t", dtype, shape, False, False, channels, 0.1, 0, False)


@pytest.mark.parametrize(
    ("code", "types", "words"),
    [
        ("FULLY_CONNECTED", ("float32", "int8", "float32"), "and here it is float32 with int8"),
        ("CONV_2D", ("float32", "int8", "float32"), "and here it is float32 with int8"),
        ("QUANTIZE", ("float32", "uint8"), "and here it is float32 with uint8"),
        ("CUSTOM MyOp", ("float32", "float32"), "has no such operator"),
    ],
)
def test_what_the_runtime_lacks_is_named_with_its_place(code, types, words):
    tensors = tuple(map(tensor, types))
    last = len(types) - 1
    graph = FileGraph(tensors, (FileOperator(code, tuple(range(last)), (last,)),), (0,), (last,))
    with pytest.raises(Unsupported, match=words) as refused:
        operators.check((graph,), {"t": "head (model.py:7)"})
    assert refused.value.subject == f"head ({code})"
    assert refused.value.location == "model.py:7"
    mixed = types[:2] == ("float32", "int8")
    assert ("--int8 --full-integer" in str(refused.value)) == mixed


def test_weights_with_a_scale_for_each_channel_between_floats_are_refused():
    """The runtime would take the first scale for all of them, and say nothing."""
    for channels in (1, 4):
        graph = FileGraph(
            (tensor("int8", channels), tensor("float32")), (FileOperator("DEQUANTIZE", (0,), (1,)),), (0,), (1,)
        )
        if channels == 1:
            operators.check((graph,), {})
            continue
        with pytest.raises(Unsupported, match="it has one for each channel"):
            operators.check((graph,), {})
