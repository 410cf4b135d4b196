"""What Vela made of a file: which operators are left to the CPU, and whether the interface is as it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from convertkit.errors import ToolError, Unsupported
from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor

_NPU = "CUSTOM ethos-u"

Named = tuple[tuple[str, str], ...]
"""Operators by kind and first output."""


def on_the_cpu(after: Sequence[FileGraph]) -> Named:
    """The operators of the compiled file that are not the NPU's."""
    return tuple((each.code, _name(graph, each)) for graph in after for each in graph.operators if each.code != _NPU)


def on_the_npu(before: Sequence[FileGraph], cpu: Named) -> Named:
    """The operators of the file as it was that the CPU does not compute."""
    left = {name for _, name in cpu}
    named = ((each.code, _name(graph, each)) for graph in before for each in graph.operators)
    return tuple((kind, name) for kind, name in named if name not in left)


def check_placement(before: Sequence[FileGraph], after: Sequence[FileGraph], allowed: Collection[str]) -> None:
    """``Unsupported`` for operators on the CPU that nobody allowed, and where nothing is left for the NPU."""
    cpu = on_the_cpu(after)
    refused = [(kind, name) for kind, name in cpu if kind not in allowed]
    if refused:
        others = "" if len(refused) == 1 else f", and {len(refused) - 1} more: {_listed(refused[1:])}"
        kinds = dict.fromkeys(kind for kind, _ in refused)
        raise Unsupported(
            f"Vela leaves it to the CPU{others}",
            subject=f"{refused[0][1]} ({refused[0][0]})",
            ways_out=(" ".join(f"--ethos-u-allow-cpu {kind}" for kind in kinds), "--target tflite-micro"),
        )
    if not any(each.code == _NPU for graph in after for each in graph.operators):
        raise Unsupported("Vela places no operator on the NPU", ways_out=("--target tflite-micro",))
    _check_interface(before[0], after[0])


def _check_interface(before: FileGraph, after: FileGraph) -> None:
    """``ToolError`` where inputs or outputs are other ones than they were."""
    for role, old, new in (("input", before.inputs, after.inputs), ("output", before.outputs, after.outputs)):
        was, now = ([_port(graph.tensors[index]) for index in of] for graph, of in ((before, old), (after, new)))
        if was != now:
            raise ToolError(f"Vela changed the {role}s: {was} became {now}")


def _port(tensor: FileTensor) -> tuple[object, ...]:
    return tensor.name, tensor.dtype, tensor.shape, tensor.scale, tensor.zero_point


def _name(graph: FileGraph, operator: FileOperator) -> str:
    return graph.tensors[operator.outputs[0]].name if operator.outputs else ""


def _listed(named: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{name} ({kind})" for kind, name in named[:8])
    return shown if len(named) <= 8 else f"{shown}, …"
