"""Bytes that depend on the model alone: ONNX Runtime writes one table of a ``.ort`` file in an order that varies.

The table tells which arguments of an operator decide about its kernel.  It is written last, and a FlatBuffer grows
towards its beginning: the table and the root lie in front of everything else, which stays as it is.
Source: ONNX Runtime, ``KernelTypeStrResolver::SaveToOrtFormat`` and its hash map.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import flatbuffers
import onnxruntime.tools.ort_format_model  # noqa: F401 - makes the next one importable
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import (
    ArgTypeAndIndex,
    InferenceSession,
    KernelTypeStrArgsEntry,
    KernelTypeStrResolver,
    OpIdKernelTypeStrArgsEntry,
)

from convertkit.errors import ToolError

_IDENTIFIER = b"ORTM"

Arguments = tuple[tuple[int, int], ...]
"""Of one type: whether inputs or outputs, and their places."""
Entry = tuple[bytes, tuple[tuple[bytes, Arguments], ...]]
"""An operator's identifier, and the arguments of each of its types."""


def in_order(data: bytes) -> bytes:
    """The file with its table of kernel types in order of their names; ``ToolError`` for another layout than known."""
    root = InferenceSession.InferenceSession.GetRootAs(data, 0)
    model, version = root.Model(), root._tab.Offset(4)
    entries = _entries(root.KernelTypeStrResolver())
    if model is None or not version or data[4:8] != _IDENTIFIER:
        raise ToolError("the .ort file has no model or no version")
    at = model._tab.Pos
    first = min(at, at - struct.unpack_from("<i", data, at)[0])
    if _last(root) > first:
        raise ToolError("this ONNX Runtime lays a .ort file out in an order that is not known")
    builder = flatbuffers.Builder(0)
    builder.Bytes = bytearray(data[first:])
    builder.head = 0
    builder.minalign = 8
    resolver = _resolver(builder, entries)
    text = root._tab.Pos + version
    InferenceSession.Start(builder)
    InferenceSession.AddOrtVersion(builder, len(data) - text - struct.unpack_from("<I", data, text)[0])
    InferenceSession.AddModel(builder, len(data) - at)
    InferenceSession.AddKernelTypeStrResolver(builder, resolver)
    builder.Finish(InferenceSession.End(builder), file_identifier=_IDENTIFIER)
    written = bytes(builder.Output())
    if _entries(InferenceSession.InferenceSession.GetRootAs(written, 0).KernelTypeStrResolver()) != entries:
        raise ToolError("the table of kernel types of the .ort file does not read back")
    return written


def _last(root: Any) -> int:
    """The last position at which one of the tables that are written anew begins."""
    resolver = root.KernelTypeStrResolver()
    found = [root._tab.Pos, resolver._tab.Pos]
    for each in _all(resolver.OpKernelTypeStrArgs, resolver.OpKernelTypeStrArgsLength):
        found.append(each._tab.Pos)
        found += [types._tab.Pos for types in _all(each.KernelTypeStrArgs, each.KernelTypeStrArgsLength)]
    return int(max(found))


def _entries(resolver: Any) -> tuple[Entry, ...]:
    operators = _all(resolver.OpKernelTypeStrArgs, resolver.OpKernelTypeStrArgsLength)
    return tuple(sorted((each.OpId(), _types(each)) for each in operators))


def _types(operator: Any) -> tuple[tuple[bytes, Arguments], ...]:
    types = _all(operator.KernelTypeStrArgs, operator.KernelTypeStrArgsLength)
    return tuple(sorted((each.KernelTypeStr(), _arguments(each)) for each in types))


def _arguments(types: Any) -> Arguments:
    return tuple((each.ArgType(), each.Index()) for each in _all(types.Args, types.ArgsLength))


def _all(item: Callable[[int], Any], count: Callable[[], int]) -> list[Any]:
    return [item(place) for place in range(count())]


def _resolver(builder: Any, entries: tuple[Entry, ...]) -> int:
    made = [_operator(builder, *entry) for entry in entries]
    vector = _vector(builder, KernelTypeStrResolver.StartOpKernelTypeStrArgsVector, made)
    KernelTypeStrResolver.Start(builder)
    KernelTypeStrResolver.AddOpKernelTypeStrArgs(builder, vector)
    return int(KernelTypeStrResolver.End(builder))


def _operator(builder: Any, name: bytes, types: tuple[tuple[bytes, Arguments], ...]) -> int:
    made = [_type(builder, *each) for each in types]
    vector = _vector(builder, OpIdKernelTypeStrArgsEntry.StartKernelTypeStrArgsVector, made)
    text = builder.CreateSharedString(name.decode())
    OpIdKernelTypeStrArgsEntry.Start(builder)
    OpIdKernelTypeStrArgsEntry.AddOpId(builder, text)
    OpIdKernelTypeStrArgsEntry.AddKernelTypeStrArgs(builder, vector)
    return int(OpIdKernelTypeStrArgsEntry.End(builder))


def _type(builder: Any, name: bytes, arguments: Arguments) -> int:
    made = [_argument(builder, *each) for each in arguments]
    vector = _vector(builder, KernelTypeStrArgsEntry.StartArgsVector, made)
    text = builder.CreateSharedString(name.decode())
    KernelTypeStrArgsEntry.Start(builder)
    KernelTypeStrArgsEntry.AddKernelTypeStr(builder, text)
    KernelTypeStrArgsEntry.AddArgs(builder, vector)
    return int(KernelTypeStrArgsEntry.End(builder))


def _argument(builder: Any, kind: int, index: int) -> int:
    ArgTypeAndIndex.Start(builder)
    ArgTypeAndIndex.AddArgType(builder, kind)
    ArgTypeAndIndex.AddIndex(builder, index)
    return int(ArgTypeAndIndex.End(builder))


def _vector(builder: Any, start: Callable[[Any, int], int], made: list[int]) -> int:
    start(builder, len(made))
    for each in reversed(made):
        builder.PrependUOffsetTRelative(each)
    return int(builder.EndVector())
