"""Sparse constants as dense ones: nothing behind the reader knows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from convertkit.errors import Unsupported

_MOST_BYTES = 1 << 31
"""A file of a few bytes may declare any size; a dense tensor takes all of it."""


def with_dense_constants(proto: onnx.ModelProto, folder: Path) -> None:
    """Turn sparse initializers and constants into dense ones, in place, in bodies and functions too.

    ``folder`` is where external data lies.  The model has been checked.
    """
    for graph in _graphs(proto.graph):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, folder))
        del graph.sparse_initializer[:]
        _constants(graph.node, folder)
    for function in proto.functions:
        _constants(function.node, folder)


def _constants(nodes: Iterable[onnx.NodeProto], folder: Path) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                dense = _dense(attribute.sparse_tensor, folder)
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.output:
                    yield from _graphs(inner)


def _dense(sparse: onnx.SparseTensorProto, folder: Path) -> onnx.TensorProto:
    values = numpy_helper.to_array(sparse.values, str(folder))
    indices = numpy_helper.to_array(sparse.indices, str(folder))
    dims = tuple(sparse.dims)
    if math.prod(dims) * values.itemsize > _MOST_BYTES:
        raise Unsupported(f"sparse constant {sparse.values.name} of {list(dims)}: more than 2 GiB as a dense one")
    dense = np.zeros(dims, values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return numpy_helper.from_array(dense, sparse.values.name)
