"""Rows by segment, diagonals and sparse coordinates.

Source: ``tensorflow/lite/kernels/{unsorted_segment,matrix_diag,matrix_set_diag,sparse_to_dense}.cc``.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from convertkit.converters.tflite.builder import FREE, Builder, Tensor, numpy_dtype
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

scattering = Registry()


def _unsorted_segment(builtin: str, reduction: str) -> None:
    def read(b: Builder, x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
        """Rows of one segment are reduced; those of negative segments go."""
        start = b.constant(np.asarray(_identity(reduction, numpy_dtype(x.dtype)), numpy_dtype(x.dtype)))
        rows = b.op("Shape", [x], {"start": segments.rank}, dtype="int64")
        number = b.op("Reshape", [b.cast(count, "int64"), b.constant([1])])
        one_more = b.op("Add", [number, b.constant([1])])  # a row for what is dropped
        target = b.op("Expand", [start, b.op("Concat", [one_more, rows], {"axis": 0})])
        places = b.cast(segments, "int64")
        negative = b.op("Less", [places, b.scalar(0, places)], dtype="bool")
        kept = b.op("Where", [negative, b.op("Reshape", [number, b.constant([])]), places], dtype="int64")
        each = b.op("Unsqueeze", [kept, b.constant([-1])])
        made = b.op("ScatterND", [target, each, x], {"reduction": reduction})
        return b.op("Slice", [made, b.constant([0]), number, b.constant([0])])

    scattering.reads(builtin)(read)


def _identity(reduction: str, kind: np.dtype[np.generic]) -> float:
    """What a segment without rows holds."""
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    limits = ml_dtypes.finfo(kind) if kind.kind == "f" else ml_dtypes.iinfo(kind)
    end: float = limits.min if reduction == "max" else limits.max
    return end


for _builtin, _reduction in (("SUM", "add"), ("PROD", "mul"), ("MAX", "max"), ("MIN", "min")):
    _unsorted_segment(f"UNSORTED_SEGMENT_{_builtin}", _reduction)


@scattering.reads("MATRIX_DIAG", moves=True)
def matrix_diag(b: Builder, x: Tensor) -> Tensor:
    """Each row becomes the diagonal of a square of integer zeros."""
    size = x.dims[-1]
    if size == FREE:
        raise Unsupported("a diagonal of dynamic size")
    grown = b.op("Unsqueeze", [x, b.constant([-1])])
    zero = b.constant(np.asarray(0, numpy_dtype(x.dtype)))
    return b.op("Where", [b.constant(np.eye(size, dtype=bool)), grown, zero], dtype=x.dtype)


@scattering.reads("MATRIX_SET_DIAG", moves=True)
def matrix_set_diag(b: Builder, x: Tensor, diagonal: Tensor) -> Tensor:
    rows, columns = x.dims[-2:]
    if FREE in (rows, columns):
        raise Unsupported("a diagonal of dynamic size")
    grown = b.op("Unsqueeze", [diagonal, b.constant([-1 if rows <= columns else -2])])
    return b.op("Where", [b.constant(np.eye(rows, columns, dtype=bool)), grown, x], dtype=x.dtype)


@scattering.reads("SPARSE_TO_DENSE", "SparseToDenseOptions", stored=True)
def sparse_to_dense(
    b: Builder, places: Tensor, shape: Tensor, values: Tensor, default: Tensor, *, validate_indices: bool
) -> Tensor:
    """Coordinates are rows of ``places``; of rank 1 they are places along one axis, of rank 0 one place."""
    rows = b.cast(places, "int64")
    if places.rank < 2:
        rows = b.op("Reshape", [rows, b.constant([-1, 1])])
    target = b.op("Expand", [b.op("Reshape", [default, b.constant([])]), b.cast(shape, "int64")])
    count = b.op("Shape", [rows], {"end": 1}, dtype="int64")
    return b.op("ScatterND", [target, rows, b.op("Expand", [values, count])])


@scattering.reads("DENSIFY")
def densify(b: Builder, x: Tensor) -> Tensor:
    """Sparse constants are dense since the file was read."""
    if x.const is None:
        raise SourceError("a computed tensor cannot be sparse")
    return x
