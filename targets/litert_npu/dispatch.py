"""A compiled file: the operator that hands everything to the NPU, and the program that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from flatbuffers import flexbuffers
from onnx import TensorProto, helper

from convertkit.errors import ToolError, Unsupported
from convertkit.targets.tflite_micro.file import FileGraph, FileTensor, custom_options, read_graphs
from convertkit.targets.tflite_micro.placed import check_interface, on_the_cpu, told

CODE = "CUSTOM DISPATCH_OP"
_OFFSET, _SIZE, _NAME = "bytecode_offset", "bytecode_size", "name"
_WAYS = ("--target tflite", "--target qnn")
_FORM = "the NPU does not take it in this form"


@dataclass(frozen=True, slots=True)
class Program:
    """The NPU's, by its name, and the tensors that go in and out."""

    name: str
    content: bytes
    inputs: tuple[FileTensor, ...]
    outputs: tuple[FileTensor, ...]


def check_tables(before: Sequence[FileGraph]) -> None:
    """``Unsupported`` for what is looked up in a table, by the integers that stand for numbers, as TFLite has them.

    The HTP casts the numbers that they stand for, so that the place in the table is another one: :mod:`.places`.
    """
    for graph in before:
        for operator in graph.operators:
            if operator.code == "CAST" and graph.tensors[operator.inputs[0]].scale:
                raise refused_table(graph.tensors[operator.outputs[0]].name)


def refused_table(name: str) -> Unsupported:
    """The refusal of the CAST that makes ``name``."""
    reason = "it casts integers that stand for numbers, which NPUs do not cast as TFLite does, or were not tried"
    return Unsupported(reason, subject=f"{name} (CAST)", ways_out=_WAYS)


def not_taken(before: Sequence[FileGraph], kind: str) -> Unsupported:
    """The refusal of the first operator that Qualcomm calls ``kind``: ``TransposeConv2d`` is ``TRANSPOSE_CONV``."""
    found = (
        f"{graph.tensors[each.outputs[0]].name} ({each.code})"
        for graph in before
        for each in graph.operators
        if each.outputs and kind.lower().startswith(each.code.replace("_", "").lower())
    )
    return Unsupported(_FORM, subject=next(found, kind), ways_out=_WAYS)


def check_whole(before: Sequence[FileGraph], after: Sequence[FileGraph]) -> None:
    """``Unsupported`` names what the NPU does not take; ``ToolError`` where inputs or outputs are other ones."""
    left = on_the_cpu(after, CODE)
    if left:
        first, others = told(left)
        raise Unsupported(f"{_FORM}{others}", subject=first, ways_out=_WAYS)
    parts = sum(len(graph.operators) for graph in after)
    if parts != 1:
        raise Unsupported(f"LiteRT's compiler makes {parts} programs of the model, not one", ways_out=_WAYS)
    check_interface(before[0], after[0], "LiteRT's compiler")


def program_of(path: Path) -> Program:
    """The NPU's program in the file at ``path``; ``ToolError`` where it does not have one alone."""
    content = path.read_bytes()
    graph = read_graphs(content)[0]
    if [each.code for each in graph.operators] != [CODE]:
        raise ToolError(f"{path.name} is not one program for an NPU")
    (operator,) = graph.operators
    (options,) = custom_options(content)
    held = flexbuffers.Loads(options)
    start, size = int(held[_OFFSET]), int(held[_SIZE])
    if not 0 < start <= start + size <= len(content):
        raise ToolError(f"{path.name} ends before the program of the NPU does")
    ins, outs = (tuple(graph.tensors[each] for each in of) for of in (operator.inputs, operator.outputs))
    return Program(str(held[_NAME]), content[start : start + size], ins, outs)


def write_context(program: Program, path: Path) -> None:
    """The program as ONNX Runtime's QNN execution provider reads it: an ONNX file with an ``EPContext``."""
    ports = [[_port(each) for each in of] for of in (program.inputs, program.outputs)]
    node = helper.make_node(
        "EPContext",
        [each.name for each in program.inputs],
        [each.name for each in program.outputs],
        domain="com.microsoft",
        main_context=1,
        embed_mode=1,
        ep_cache_context=program.content,
        source="QNN",
        partition_name=program.name,
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], program.name, *ports)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def _port(tensor: FileTensor) -> onnx.ValueInfoProto:
    dtype = TensorProto.DataType.Value({"float32": "FLOAT"}.get(tensor.dtype, tensor.dtype.upper()))
    return helper.make_tensor_value_info(tensor.name, dtype, tensor.shape)
