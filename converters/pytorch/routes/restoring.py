"""Giving an exporter's ONNX file exactly the inputs and outputs that the source model has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count

import onnx_ir as ir

from convertkit.artifact import Dim
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.provenance import TRACE_KEY, python_trace, user_trace
from convertkit.errors import ToolError

_WORD = re.compile(r"[A-Za-z_]\w*")
_MODULES_KEY = "namespace"
"""Metadata of an ONNX node: the modules that it lies in, outermost first."""
_OUR_WRAPPER = re.compile(r"^: convertkit\.[\w.]+/")
"""What we wrap a module in: where that lies in our own tree is not part of an artifact."""


def settle_interface(model: ir.Model, leaves: Sequence[Leaf], outputs: Sequence[str]) -> None:
    """Rewrite the model's interface in place: all leaves in their order, outputs under their names.

    An input that the exporter dropped because nothing reads it comes back, unread.
    Raises ``ToolError`` where the exporter made another interface than the model has.
    """
    graph = model.graph
    found = {value.name: value for value in graph.inputs if value.name not in graph.initializers}
    if surplus := sorted(str(name) for name in set(found) - {leaf.name for leaf in leaves}):
        raise ToolError(f"the exporter made the input {surplus[0]}, which the model does not have")
    inputs = [found.get(leaf.name) or _unread(leaf) for leaf in leaves]
    if len(graph.outputs) != len(outputs):
        raise ToolError(f"the exporter made {len(graph.outputs)} outputs, the model has {len(outputs)}")
    renamed = _renamed_dims(inputs, leaves)
    renamed.update(_readable_dims(graph.outputs, outputs, {*renamed, *_free_dims(leaves)}))
    for value, leaf in zip(inputs, leaves, strict=True):
        _check_free(value, leaf)
        value.shape = ir.Shape(leaf.shape)
    for value in [*graph.outputs, *(value for node in graph.all_nodes() for value in node.outputs)]:
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(dim, renamed) for dim in tuple(value.shape)])
    graph.inputs[:] = inputs
    _free_names(graph, outputs)
    _name_outputs(graph, outputs)
    _keep_user_traces(model)


def _free_names(graph: ir.Graph, names: Sequence[str]) -> None:
    """Rename what an exporter has called as an output is to be called; a constant that is returned has that name."""
    values = [*graph.initializers.values(), *(value for node in graph.all_nodes() for value in node.outputs)]
    taken = {value.name for value in (*graph.inputs, *values)}
    for value in values:
        if value.name in names:
            value.name = next(name for n in count() if (name := f"{value.name}_{n}") not in taken)
            taken.add(value.name)


def _name_outputs(graph: ir.Graph, names: Sequence[str]) -> None:
    """Give every output its own name: one value may be returned twice, or be an input or a constant."""
    for place, name in enumerate(names):
        value = graph.outputs[place]
        if value.producer() is None or any(value is earlier for earlier in graph.outputs[:place]):
            copy = ir.node("Identity", [value])
            graph.append(copy)
            copy.outputs[0].shape, copy.outputs[0].type = value.shape, value.type
            graph.outputs[place] = value = copy.outputs[0]
        value.name = name


def _check_free(value: ir.Value, leaf: Leaf) -> None:
    for fixed, dim in zip(tuple(value.shape or ()), leaf.shape, strict=False):
        if isinstance(dim, str) and (isinstance(fixed, int) or _text(fixed).isdecimal()):
            raise ToolError(f"the exporter fixed {dim} of {leaf.name} at {fixed}")


def _renamed_dims(values: Sequence[ir.Value], leaves: Sequence[Leaf]) -> dict[str, Dim]:
    """The exporter's names of dynamic dimensions (``s77``) and what the leaves call them."""
    pairs = [
        (_text(ours), theirs)
        for value, leaf in zip(values, leaves, strict=True)
        if value.shape is not None and len(value.shape) == len(leaf.shape)
        for ours, theirs in zip(tuple(value.shape), leaf.shape, strict=True)
    ]
    return {name: dim for name, dim in pairs if name and name != dim}


def _renamed(dim: int | ir.SymbolicDim, names: Mapping[str, Dim]) -> int | str | ir.SymbolicDim:
    """``dim`` in the leaves' words, also where it is computed from dynamic dimensions (``2*s77``)."""
    text = _text(dim)
    if text in names:
        return names[text]
    told = _WORD.sub(lambda word: str(names.get(word[0], word[0])), text)
    if told == text:
        return dim
    return told if _WORD.search(told) else ir.SymbolicDim(told).evaluate({})


def _free_dims(leaves: Sequence[Leaf]) -> set[str]:
    return {dim for leaf in leaves for dim in leaf.shape if isinstance(dim, str)}


def _readable_dims(values: Sequence[ir.Value], names: Sequence[str], known: set[str]) -> dict[str, Dim]:
    """Dynamic dimensions of outputs that say nothing of the inputs' (``Resizeoutput_dim_0``), as ``output_2``."""
    found: dict[str, Dim] = {}
    for value, name in zip(values, names, strict=True):
        for axis, dim in enumerate(tuple(value.shape or ())):
            if (text := _text(dim)) and not known & set(_WORD.findall(text)):
                found.setdefault(text, f"{name}_{axis}")
    return found


def _text(dim: int | ir.SymbolicDim) -> str:
    return "" if isinstance(dim, int) or dim.value is None else str(dim.value)


def _keep_user_traces(model: ir.Model) -> None:
    """Leave each node the user's own source lines and modules, and nothing else of what exporters note."""
    for node in model.graph.all_nodes():
        if modules := node.metadata_props.get(_MODULES_KEY):
            node.metadata_props[_MODULES_KEY] = _OUR_WRAPPER.sub("", modules)
        noted = node.metadata_props.get(TRACE_KEY, "") or python_trace(node.doc_string or "")
        trace = user_trace(noted)
        for key in [key for key in node.metadata_props if key.startswith("pkg.torch.onnx.")]:
            del node.metadata_props[key]
        node.doc_string = None
        if trace:
            node.metadata_props[TRACE_KEY] = trace
    _lend_traces(model.graph)


def _lend_traces(graph: ir.Graph) -> None:
    """Give nodes that an exporter has inserted, sizes above all, the lines of what reads them."""
    for node in reversed(list(graph)):
        if TRACE_KEY not in node.metadata_props:
            readers = (reader for value in node.outputs for reader, _ in value.uses())
            traces = (reader.metadata_props.get(TRACE_KEY, "") for reader in readers)
            if trace := next(filter(None, traces), ""):
                node.metadata_props[TRACE_KEY] = trace


def _unread(leaf: Leaf) -> ir.Value:
    dtype = ir.DataType[leaf.dtype.upper().replace("FLOAT32", "FLOAT").replace("FLOAT64", "DOUBLE")]
    return ir.Value(name=leaf.name, shape=ir.Shape(leaf.shape), type=ir.TensorType(dtype))
