"""What a compiler for an NPU made of a file: operators that it left to the CPU, and the interface as it was."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.errors import ToolError
from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor

_SHOWN = 8

Named = tuple[tuple[str, str], ...]
"""Operators by kind and first output."""


def on_the_cpu(after: Sequence[FileGraph], npu: str) -> Named:
    """The operators of the compiled file that are not the NPU's, whose kind is ``npu``."""
    return tuple((each.code, _output(graph, each)) for graph in after for each in graph.operators if each.code != npu)


def on_the_npu(before: Sequence[FileGraph], cpu: Named) -> Named:
    """The operators of the file as it was that the CPU does not compute."""
    left = {name for _, name in cpu}
    found = ((each.code, _output(graph, each)) for graph in before for each in graph.operators)
    return tuple((kind, name) for kind, name in found if name not in left)


def told(left: Named) -> tuple[str, str]:
    """The first of several operators, and what to say of the others behind a sentence about it."""
    others = ", ".join(_named(*each) for each in left[1 : _SHOWN + 1])
    more = "" if len(left) == 1 else f", and {len(left) - 1} more: {others}{', …' * (len(left) > _SHOWN + 1)}"
    return _named(*left[0]), more


def check_interface(before: FileGraph, after: FileGraph, compiler: str) -> None:
    """``ToolError`` where inputs or outputs are other ones than they were."""
    for role, old, new in (("input", before.inputs, after.inputs), ("output", before.outputs, after.outputs)):
        was, now = ([_port(graph.tensors[index]) for index in of] for graph, of in ((before, old), (after, new)))
        if was != now:
            raise ToolError(f"{compiler} changed the {role}s: {was} became {now}")


def _port(tensor: FileTensor) -> tuple[object, ...]:
    return tensor.name, tensor.dtype, tensor.shape, tensor.scale, tensor.zero_point


def _output(graph: FileGraph, operator: FileOperator) -> str:
    return graph.tensors[operator.outputs[0]].name if operator.outputs else ""


def _named(kind: str, name: str) -> str:
    return f"{name} ({kind})"
