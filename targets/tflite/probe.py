"""Values inside of a ``.tflite`` file: LiteRT runs a copy of the file that returns them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import interpreter as litert
from ai_edge_litert import schema_py_generated as schema

from convertkit.artifact import Array, Artifact, Quantization
from convertkit.errors import ToolError
from convertkit.probing import Inner
from convertkit.quiet import native_stderr_silent
from convertkit.stage import Feed
from convertkit.targets.tflite.compile import METADATA
from convertkit.targets.tflite.inspection import CODES, TYPES
from convertkit.targets.tflite.origins import origins_of

_IDENTIFIER = b"TFL3"
_TOLD = frozenset({"float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool", "float64"})


class TfliteProbe:
    """The main graph of one file."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        data = artifact.path.read_bytes()
        self._model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
        self._graph: Any = self._model.subgraphs[0]
        self._names = [_text(tensor.name) for tensor in self._graph.tensors]
        self._inputs, self._outputs = self._ends("inputs"), self._ends("outputs")

    def _ends(self, role: str) -> dict[str, int]:
        """Tensors of the interface by their public names: those of a signature, else their own."""
        found = {self._names[index]: int(index) for index in getattr(self._graph, role)}
        for signature in self._model.signatureDefs or ():
            if signature.subgraphIndex == 0:
                found |= {_text(each.name): int(each.tensorIndex) for each in getattr(signature, role)}
        return found

    def inner(self) -> tuple[Inner, ...]:
        """What each operator computes, but for text and whatever else is not a number."""
        origins = origins_of(self._model, METADATA)
        constants = self._constants()
        found = []
        for operator in self._graph.operators:
            kind = self._kind(operator)
            reads = tuple(self._names[index] for index in operator.inputs if index >= 0 and index not in constants)
            for index in operator.outputs:
                tensor = self._graph.tensors[index]
                if TYPES[int(tensor.type)] in _TOLD and not tensor.isVariable:
                    origin = origins.get(self._names[index], "")
                    clamps = bool(getattr(operator.builtinOptions, "fusedActivationFunction", 0))
                    found.append(replace(self._described(int(index), kind, origin, reads), clamps=clamps))
        return tuple(found)

    def _described(self, index: int, kind: str, origin: str, reads: tuple[str, ...]) -> Inner:
        tensor = self._graph.tensors[index]
        shape = tuple(1 if size < 0 else int(size) for size in (() if tensor.shape is None else tensor.shape))
        operator, _, where = origin.partition(" (")
        return Inner(
            self._names[index],
            kind,
            operator,
            reads,
            shape,
            TYPES[int(tensor.type)],
            _quantization(tensor),
            where.removesuffix(")"),
        )

    def _kind(self, operator: Any) -> str:
        entry = self._model.operatorCodes[operator.opcodeIndex]
        return CODES[max(entry.builtinCode, entry.deprecatedBuiltinCode)]

    def _constants(self) -> frozenset[int]:
        stored = {place for place, each in enumerate(self._model.buffers) if each.data is not None or each.size > 1}
        return frozenset(place for place, each in enumerate(self._graph.tensors) if each.buffer in stored)

    def port(self, name: str) -> str:
        """The tensor that a signature gives this name."""
        return self._names[(self._inputs | self._outputs)[name]]

    def values(self, feed: Feed, names: Sequence[str]) -> Mapping[str, Array]:
        """Run a copy of the file whose outputs these are, with the kernels that run the file itself."""
        wanted = [self._names.index(name) for name in names]
        kept, self._graph.outputs = self._graph.outputs, [*dict.fromkeys((*self._graph.outputs, *wanted))]
        try:
            content = self._packed()
        finally:
            self._graph.outputs = kept
        try:
            with native_stderr_silent():
                return self._run(content, feed, dict(zip(names, wanted, strict=True)))
        except (RuntimeError, ValueError) as error:
            raise ToolError(f"LiteRT does not tell inner values of {self._artifact.path.name}: {error}") from error

    def _run(self, content: bytes, feed: Feed, wanted: Mapping[str, int]) -> Mapping[str, Array]:
        runner = litert.Interpreter(model_content=content, num_threads=1)
        given = {
            self._inputs[spec.name]: spec.encode(np.asarray(feed[spec.name]))
            for spec in self._artifact.inputs
            if spec.name in feed
        }
        for index, value in given.items():
            runner.resize_tensor_input(index, value.shape)
        runner.allocate_tensors()
        for index, value in given.items():
            runner.set_tensor(index, value)
        runner.invoke()
        return {name: self._real(index, np.array(runner.get_tensor(index))) for name, index in wanted.items()}

    def _real(self, index: int, value: Array) -> Array:
        known = _quantization(self._graph.tensors[index])
        if known is None or value.dtype.kind not in "iu":
            return value
        return (value.astype(np.float32) - np.float32(known.zero_point)) * np.float32(known.scale)

    def _packed(self) -> bytes:
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self._model.Pack(builder), _IDENTIFIER)
        return bytes(builder.Output())

    def cut(self, inputs: Sequence[str], outputs: Sequence[str], path: Path) -> None:
        """Write a file of the operators between these tensors; constants that they do not read are left empty."""
        ends = {self._names.index(name) for name in inputs}
        needed, kept = {self._names.index(name) for name in outputs}, list[Any]()
        for operator in reversed(self._graph.operators):
            if needed.intersection(int(index) for index in operator.outputs) - ends:
                kept.append(operator)
                needed |= {int(index) for index in operator.inputs if index >= 0} - ends
        whole = self._graph.operators, self._graph.inputs, self._graph.outputs, self._model.signatureDefs
        data = [each.data for each in self._model.buffers]
        read = {int(index) for operator in kept for index in operator.inputs if index >= 0}
        used = {self._graph.tensors[index].buffer for index in read}
        self._graph.operators, self._model.signatureDefs = kept[::-1], None
        also = sorted(read & {int(index) for index in whole[1]})  # inputs of the model that these operators read
        self._graph.inputs = [*dict.fromkeys((*(self._names.index(name) for name in inputs), *also))]
        self._graph.outputs = [self._names.index(name) for name in outputs]
        for place, each in enumerate(self._model.buffers):
            each.data = each.data if place in used else None
        try:
            path.write_bytes(self._packed())
        finally:
            self._graph.operators, self._graph.inputs, self._graph.outputs, self._model.signatureDefs = whole
            for each, content in zip(self._model.buffers, data, strict=True):
                each.data = content


def _quantization(tensor: Any) -> Quantization | None:
    """Of a value with one scale; None for a plain one."""
    found = tensor.quantization
    if (
        found is None
        or found.scale is None
        or len(found.scale) != 1
        or TYPES[int(tensor.type)] in ("float32", "float16")
    ):
        return None
    zero = found.zeroPoint
    return Quantization(float(found.scale[0]), int(zero[0]) if zero is not None and len(zero) else 0)


def _text(name: Any) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else str(name or "")
