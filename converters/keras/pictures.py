"""Pictures resized as TensorFlow does it, by Keras on JAX.

TensorFlow takes bicubic weights from a table of 1,024, up to 7e-4 from the formula that JAX computes, and resizes by
area, which JAX does not.  A file does not say what it was trained with; those with such layers mostly come from
TensorFlow, and ``.h5`` files of Keras 2 all do.  Both ways are linear, and separate for rows and columns: two products.
Source: TensorFlow's kernels resize_bicubic_op.cc and resize_area_op.cc, with half-pixel centres.

Imports JAX, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from convertkit.artifact import Array

_TABLE = 1024
_A = np.float32(-0.5)
"""The free coefficient of the cubic; -0.75 with the centres of old."""
_LEAST_SUM = 1000 * np.finfo(np.float32).tiny


def resized(images: Any, shape: Sequence[Any], method: str = "bilinear", antialias: bool = True, **how: Any) -> Any:
    """``jax.image.resize`` with TensorFlow's weights for ``bicubic`` without antialias and for ``area``."""
    axes = [axis for axis, size in enumerate(shape) if size is not images.shape[axis] and size != images.shape[axis]]
    cubic = method == "bicubic" and not antialias
    if not (cubic or method == "area"):
        return jax.image.resize(images, shape, method=method, antialias=antialias, **how)
    found = images if jnp.issubdtype(images.dtype, jnp.floating) else images.astype(np.float32)
    for axis in axes:
        weights = (cubic_weights if cubic else area_weights)(images.shape[axis], shape[axis]).astype(found.dtype)
        found = jnp.moveaxis(jnp.tensordot(weights, found, axes=([1], [axis])), 0, axis)
    return found


def cubic_weights(before: Any, after: Any) -> Any:
    """Weights [after, before] of one axis; what lies outside the picture has none, and each row sums to 1."""
    numpy, scale = _numpy(before, after), _real(before) / _real(after)
    centers = (numpy.arange(after, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    first = numpy.floor(centers)
    offsets = numpy.rint((centers - first) * np.float32(_TABLE)).astype(np.int32)
    near, far = (numpy.asarray(each) for each in _table())
    taps = far[offsets], near[offsets], near[_TABLE - offsets], far[_TABLE - offsets]
    distance = numpy.arange(before, dtype=np.float32) - first[:, None]
    weights = sum(numpy.where(distance == np.float32(place - 1), tap[:, None], np.float32(0))
                  for place, tap in enumerate(taps))  # fmt: skip
    total = weights.sum(axis=1, keepdims=True, dtype=np.float32)
    is_some = numpy.abs(total) >= _LEAST_SUM
    return numpy.where(is_some, weights * (np.float32(1) / numpy.where(is_some, total, np.float32(1))), weights)


def _numpy(*sizes: Any) -> Any:
    """What computes with sizes: JAX where one is dynamic."""
    return np if all(isinstance(size, int) for size in sizes) else jnp


def _real(size: Any) -> Any:
    return np.float32(size) if isinstance(size, int) else jnp.asarray(size).astype(np.float32)


def _table() -> tuple[Array, Array]:
    """The cubic at 0, 1/1024, … 1, and the same from 1 to 2."""
    x = np.arange(_TABLE + 1, dtype=np.float32) / np.float32(_TABLE)
    near = ((_A + 2) * x - (_A + 3)) * x * x + 1
    x = x + 1
    return near, ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A


def area_weights(before: Any, after: Any) -> Any:
    """Weights [after, before] of one axis: how much of each element lies in the window of the result's."""
    numpy, scale = _numpy(before, after), _real(before) / _real(after)
    start = (numpy.arange(after, dtype=np.float32) * scale)[:, None]
    end = ((numpy.arange(after, dtype=np.float32) + 1) * scale)[:, None]
    place = numpy.arange(before, dtype=np.float32)
    ends = numpy.where(place < start, scale, end - place)
    inside = numpy.where(place + 1 > end, ends, numpy.where(place < start, place + 1 - start, np.float32(1)))
    met = (place >= numpy.floor(start)) & (place < numpy.ceil(end))
    return numpy.where(met, inside, np.float32(0)) * (np.float32(1) / scale)
