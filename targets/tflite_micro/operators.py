"""What TensorFlow Lite Micro can compute: the operators that it registers, and the types that their kernels take."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from convertkit.errors import Unsupported
from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor

_FIRST_OUTPUT = -1
_NARROW = ("int8", "int16")
_FULL_INTEGER = ("--int8 --full-integer, where no operator is left in float", "--target tflite")


@dataclass(frozen=True, slots=True)
class Kernel:
    """``add`` is the resolver's method; ``types`` are those of the tensors at ``of``, with spaces between them.

    ``scaled``: it takes integers of 8 and 16 bits with a scale alone.
    """

    add: str
    types: tuple[str, ...]
    of: tuple[int, ...] = (0,)
    scaled: bool = False


@cache
def kernels() -> Mapping[str, Kernel]:
    """By operator, in the order of their names."""
    rows = _table()["operators"]
    return {
        code: Kernel(row["add"], tuple(row["types"]), tuple(row.get("of", (0,))), bool(row.get("scaled")))
        for code, row in rows.items()
    }


def version() -> str:
    """Of the Python package that the table was held against."""
    return str(_table()["version"])


def check(graphs: Sequence[FileGraph], origins: Mapping[str, str]) -> None:
    """``Unsupported`` names the first operator that TensorFlow Lite Micro lacks, for the types that the model has.

    Its DEQUANTIZE reads the first of several scales and says nothing (``PrepareDequantizeReference``).
    ``origins`` says where in the source a tensor comes from, by its name.
    """
    for graph in graphs:
        for operator in graph.operators:
            if (refusal := _refusal(operator, graph)) is not None:
                name = graph.tensors[operator.outputs[0]].name if operator.outputs else operator.code
                node, _, where = origins.get(name, name).partition(" (")
                raise refusal.located(f"{node} ({operator.code})", where.removesuffix(")"))


def used(graphs: Sequence[FileGraph]) -> tuple[str, ...]:
    """The operators of a model, each once, in the order of their names."""
    return tuple(sorted({operator.code for graph in graphs for operator in graph.operators}))


def _refusal(operator: FileOperator, graph: FileGraph) -> Unsupported | None:
    kernel = kernels().get(operator.code)
    if kernel is None:
        return Unsupported("TensorFlow Lite Micro has no such operator", ways_out=("--target tflite",))
    places = [operator.outputs[0] if place == _FIRST_OUTPUT else operator.inputs[place] for place in kernel.of]
    found = " ".join(graph.tensors[place].dtype for place in places)
    if operator.code == "DEQUANTIZE" and graph.tensors[operator.inputs[0]].channels > 1:
        reason = "TensorFlow Lite Micro takes one scale for all of it, and it has one for each channel"
        return Unsupported(reason, ways_out=_FULL_INTEGER)
    if found in kernel.types:
        return _without_scale(kernel, [graph.tensors[place] for place in (*operator.inputs, *operator.outputs)])
    reason = f"TensorFlow Lite Micro computes it for {_listed(kernel.types)}, and here it is {_words(found)}"
    return Unsupported(reason, ways_out=_ways_out(found))


def _without_scale(kernel: Kernel, tensors: Sequence[FileTensor]) -> Unsupported | None:
    plain = next((each for each in tensors if each.dtype in _NARROW and not each.channels), None)
    if not kernel.scaled or plain is None:
        return None
    reason = f"TensorFlow Lite Micro computes {plain.dtype} with a scale alone, and {plain.name} holds plain numbers"
    return Unsupported(reason, ways_out=("a Cast to int32 in front of it", "--target tflite"))


def _ways_out(types: str) -> tuple[str, ...]:
    """Products of floats with stored integers are ``--int8``'s, where LiteRT computes them faster."""
    mixed = types in ("float32 int8", "float32 int4", "float32 int32")
    return _FULL_INTEGER if mixed else ("--target tflite",)


def _words(types: str) -> str:
    return " with ".join(types.split())


def _listed(types: Iterable[str]) -> str:
    return ", ".join(map(_words, types))


@cache
def _table() -> Mapping[str, Any]:
    text = resources.files("convertkit.targets.tflite_micro").joinpath("operators.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
