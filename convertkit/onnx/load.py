"""Read an ONNX file without trusting it.

A model file may lie: tensors that declare gigabytes they do not hold, external data outside its
folder, nodes that use what nothing produced, cycles.  Everything is checked on the parsed protobuf
before any tensor is touched.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from convertkit.errors import SourceError, Unsupported
from convertkit.onnx.dense import with_dense_constants
from convertkit.onnx.dictionaries import without_dictionaries
from convertkit.onnx.group_norms import node_lists
from convertkit.onnx.mapped import read_proto, with_mapped
from convertkit.onnx.node_order import sort_nodes
from convertkit.onnx.tolerated import in_letter, put_right

MAX_DIM = 1 << 40
_MAX_NESTING = 32


def load_model(path: Path) -> ir.Model:
    """The model at ``path`` with large and with external tensors memory-mapped.

    Raises ``SourceError`` where the file is missing, broken or hostile.
    """
    proto = load_proto(path)
    without_dictionaries(proto)
    _refuse_maps(proto.graph)
    with_dense_constants(proto, path.parent)
    try:
        model: ir.Model = ir.from_proto(proto)
    except ir.serde.SerdeError as error:
        raise SourceError(f"{path} is invalid ONNX: {_sentence(_root(error))}") from error
    ir.external_data.set_base_dir(model.graph, path.parent)
    with_mapped(model, path)
    return model


def _refuse_maps(graph: onnx.GraphProto) -> None:
    """What is left of them: inputs, and outputs that no ZipMap makes."""
    for value in (*graph.input, *graph.output):
        kind = value.type
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind.optional_type.elem_type
        if kind.HasField("map_type"):
            raise Unsupported(
                f"{value.name} holds dictionaries, not made by a ZipMap; only tensors can cross an artifact's interface"
            )


def load_own(path: Path) -> ir.Model:
    """A model that a stage of this export has written and ONNX Runtime has executed: nothing is checked again."""
    proto = read_proto(path)
    without_dictionaries(proto)
    model: ir.Model = ir.from_proto(proto)
    ir.external_data.set_base_dir(model.graph, path.parent)
    with_mapped(model, path)
    return model


def load_proto(path: Path) -> onnx.ModelProto:
    """The checked protobuf at ``path``; external data and large weights stay on disk."""
    if not path.is_file():
        raise SourceError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    if path.stat().st_size == 0:
        raise SourceError(f"{path} is empty")
    try:
        proto = read_proto(path)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise SourceError(f"{path} is not an ONNX model, or a truncated one") from error
    if not proto.HasField("graph") or not proto.graph.output or not proto.opset_import:
        raise SourceError(f"{path} is not an ONNX model: it declares no graph with outputs and opset")
    sort_nodes(proto.graph)
    checker = _Checker(path)
    checker.graph(proto.graph, frozenset(), 0)
    checker.functions(proto)
    put_right(proto)
    try:
        onnx.checker.check_model(in_letter(proto))
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise SourceError(f"{path} is invalid ONNX: {_sentence(error)}") from error
    return proto


def external_files(path: Path) -> tuple[Path, ...]:
    """The files beside a model that hold its weights; none where it cannot be read, which opening it will tell."""
    try:
        proto = read_proto(path)
    except (DecodeError, RuntimeError, ValueError, OSError):
        return ()
    places = {
        entry.value
        for nodes in (proto.graph, *proto.functions)
        for tensor in _all_tensors(nodes)
        for entry in tensor.external_data
        if entry.key == "location" and entry.value != path.name
    }
    return tuple(file for place in sorted(places) if (file := path.parent / place).is_file())


def _all_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Those of the subgraphs, too."""
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_tensors(inner)


def _root(error: BaseException) -> BaseException:
    """The first cause; onnx_ir wraps it once for each level of the model."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(error).__name__


class _Checker:
    """Structural checks that ONNX's own checker does not make, or makes too late."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.resolve().parent

    def graph(self, graph: onnx.GraphProto, outer: frozenset[str], depth: int) -> None:
        if depth > _MAX_NESTING:
            raise SourceError(f"{self._path}: subgraphs nested deeper than {_MAX_NESTING}")
        if not all(isinstance(text, str) for text in _texts(graph)):  # protobuf hands out bytes for such fields
            raise SourceError(f"{self._path} is invalid ONNX: a name in it is not UTF-8")
        for tensor in _tensors(graph):
            self._tensor(tensor)
        for value in graph.input:
            self._dims(value)
        known = {*outer, "", *(i.name for i in graph.input), *(i.name for i in graph.initializer)}
        known.update(sparse.values.name for sparse in graph.sparse_initializer)
        produced = {name for node in graph.node for name in node.output if name}
        for node in graph.node:
            for name in node.input:
                if name not in known:
                    fault = "the nodes form a cycle" if name in produced else "nothing produces it"
                    raise SourceError(f"{self._path}: node {_title(node)} uses {name!r} too early: {fault}")
            self._outputs(node)
            self._equation(node)
            for attribute in node.attribute:
                for sub in (attribute.g, *attribute.graphs):
                    if sub.input and node.op_type == "If" and not node.domain:
                        raise SourceError(
                            f"{self._path}: node {_title(node)} has a branch with the input {sub.input[0].name!r}; "
                            "branches have none, and read the values around them"
                        )
                    if sub.node or sub.output:
                        self.graph(sub, frozenset(known), depth + 1)
            known.update(node.output)

    def _outputs(self, node: onnx.NodeProto) -> None:
        """Those of a Split or a Loop are not optional: ONNX Runtime 1.31 ends its process where one has no name."""
        if node.domain in ("", "ai.onnx") and node.op_type in ("Split", "Loop") and "" in node.output:
            place = f"{list(node.output).index('') + 1} of {len(node.output)}"
            raise SourceError(
                f"{self._path}: node {_title(node)} gives output {place} no name, which ONNX allows only of optional "
                "outputs; name it, though nothing reads it"
            )

    def functions(self, proto: onnx.ModelProto) -> None:
        """What holds for nodes wherever they stand."""
        for function in proto.functions:
            for nodes in node_lists(function.node):
                for node in nodes:
                    self._equation(node)

    def _equation(self, node: onnx.NodeProto) -> None:
        """ONNX's shape inference never ends on a term of an Einsum with more dots than those of one ellipsis."""
        texts = [each.s.decode(errors="replace") for each in node.attribute if each.name == "equation"]
        for text in texts if node.op_type == "Einsum" else ():
            if any("." in term.replace("...", "", 1) for term in text.replace("->", ",").split(",")):
                raise SourceError(
                    f"{self._path}: node {_title(node)} has the equation {text!r}; a term may hold one ellipsis of "
                    "three dots"
                )

    def _dims(self, value: onnx.ValueInfoProto) -> None:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim if d.HasField("dim_value")]
        if math.prod(d for d in dims if d > 0) > MAX_DIM:
            raise SourceError(f"{self._path}: input {value.name!r} declares absurd dimensions {dims}")

    def _tensor(self, tensor: onnx.TensorProto) -> None:
        dims = list(tensor.dims)
        if any(d < 0 for d in dims) or math.prod(dims) > MAX_DIM:
            raise SourceError(f"{self._path}: tensor {tensor.name!r} declares absurd dimensions {dims}")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            self._external(tensor)
            return
        if tensor.data_type == onnx.TensorProto.STRING:
            held, want = len(tensor.string_data), math.prod(dims)
        elif tensor.HasField("raw_data"):
            held, want = len(tensor.raw_data), _size_bytes(tensor)
        else:
            held, want = _typed_count(tensor)
        if held != want:
            raise SourceError(
                f"{self._path}: tensor {tensor.name!r} declares {dims} ({want} units of data) and holds {held}"
            )

    def _external(self, tensor: onnx.TensorProto) -> None:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        try:
            file = (self._folder / location).resolve()
            is_there = file.is_file() and os.access(file, os.R_OK)
        except (ValueError, RuntimeError, OSError) as error:  # a zero byte, a loop of links, a name that is too long
            raise SourceError(
                f"{self._path}: tensor {tensor.name!r} points to {location!r}, which is not a file"
            ) from error
        if not location or Path(location).is_absolute() or not file.is_relative_to(self._folder):
            raise SourceError(
                f"{self._path}: tensor {tensor.name!r} points to {location!r}, outside the model's folder; refused"
            )
        if not is_there:
            raise SourceError(
                f"{self._path}: tensor {tensor.name!r} needs {location!r}, which does not exist or cannot be read"
            )
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", str(_size_bytes(tensor))))
        except ValueError as error:
            raise SourceError(f"{self._path}: tensor {tensor.name!r} has a malformed external offset") from error
        if offset < 0 or length != _size_bytes(tensor) or offset + length > file.stat().st_size:
            raise SourceError(f"{self._path}: tensor {tensor.name!r} does not fit into {location!r}")


def _texts(graph: onnx.GraphProto) -> Iterator[object]:
    yield from (graph.name, graph.doc_string)
    for tensor in _tensors(graph):
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield from (named.name, named.doc_string)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors


def _bits(tensor: onnx.TensorProto) -> int:
    try:
        return int(ir.DataType(tensor.data_type).bitwidth)
    except (ValueError, TypeError) as error:
        raise SourceError(f"tensor {tensor.name!r} has the unknown data type {tensor.data_type}") from error


def _size_bytes(tensor: onnx.TensorProto) -> int:
    return int(-(-math.prod(tensor.dims) * _bits(tensor) // 8))


def _typed_count(tensor: onnx.TensorProto) -> tuple[int, int]:
    """Elements held in the typed fields and elements wanted, in units of that field."""
    counts = (
        len(tensor.float_data),
        len(tensor.int32_data),
        len(tensor.int64_data),
        len(tensor.double_data),
        len(tensor.uint64_data),
    )
    want = math.prod(tensor.dims)
    bits = _bits(tensor)
    if tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        want *= 2
    elif bits < 8:
        want = -(-want * bits // 8)
    return max(counts), want


def _title(node: onnx.NodeProto) -> str:
    return f"{node.name or node.output[0] if node.output else node.name!r} ({node.op_type})"
