"""The weights of one product that stay, and its biases, in coordinates in which its inputs are white.

Steps of the same length in them change the outputs alike, so training is over in tens of steps where weights as they
are take hundreds: inputs behind a Relu have a large mean and are much alike.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.pruning.student import Arrays, Trained

_DAMPING = 0.1
"""Share of the mean power of the inputs that is added to each one's."""
_MOST = 1 << 24
"""Numbers in all matrices of a product; beyond, its inputs are scaled and stay correlated."""


class Coordinates:
    """Coordinates (parts, rows, places): row by row what stays of the weights."""

    def __init__(self, rows: Array, kept: Array, second: Array) -> None:
        """Of ``rows`` (parts, rows, columns) those ``kept``; ``second`` (parts, columns, columns) is E[x xᵀ]."""
        most = max(1, int(kept.sum(axis=2).max()))
        self._shape = rows.shape
        self._places = np.argsort(~kept, axis=2, kind="stable")[:, :, :most]
        self._valid = np.take_along_axis(kept, self._places, axis=2)
        damping = _DAMPING * np.maximum(np.trace(second, axis1=1, axis2=2) / second.shape[1], 1e-12)
        if self._valid.all() and most == rows.shape[2]:
            self._factor: Array = np.linalg.cholesky(second + np.eye(most) * damping[:, None, None])[:, None]
            self._inverse: Array = np.linalg.inv(self._factor).astype(np.float32)
        elif self._valid.size * most > _MOST:
            power = np.diagonal(second, axis1=1, axis2=2) + damping[:, None]
            wide = np.broadcast_to(power[:, None, :], rows.shape)
            self._factor = np.sqrt(np.take_along_axis(wide, self._places, axis=2))[..., None]
            self._inverse = 1 / self._factor
        else:
            self._factor = np.linalg.cholesky(self._inner(second, damping))
            self._inverse = np.linalg.inv(self._factor).astype(np.float32)
        white = _times(self._factor, self.picked(rows), turned=True)[self._valid]
        self.size = max(float(np.sqrt(np.square(white).mean())), 1e-9)

    def gradient(self, rows: Array) -> Array:
        """A gradient (parts, rows, columns) in these coordinates."""
        return _times(self._inverse, self.picked(rows))

    def step(self, step: Array) -> Array:
        """What a step in these coordinates adds to the weights that stay."""
        return np.asarray(np.where(self._valid, _times(self._inverse, step, turned=True), 0), np.float32)

    def picked(self, rows: Array) -> Array:
        """The weights that stay, and zeros where a row has fewer than others."""
        return np.where(self._valid, np.take_along_axis(rows, self._places, axis=2), 0).astype(np.float32)

    def spread(self, weights: Array) -> Array:
        """The inverse of :meth:`picked`."""
        rows = np.zeros(self._shape, np.float32)
        np.put_along_axis(rows, self._places, np.where(self._valid, weights, 0), axis=2)
        return rows

    def _inner(self, second: Array, damping: Array) -> Array:
        """Of each row the damped moments of the inputs that it reads; ones where it reads fewer than others."""
        parts = np.arange(len(second))[:, None, None, None]
        found = second[parts, self._places[:, :, :, None], self._places[:, :, None, :]]
        both = self._valid[:, :, :, None] & self._valid[:, :, None, :]
        own = np.where(self._valid, damping[:, None, None], 1.0)
        return np.asarray(np.where(both, found, 0) + np.eye(found.shape[-1]) * own[:, :, :, None])


class Whitened:
    """A product's weights in :class:`Coordinates`, the bias as the last column where there is one."""

    def __init__(self, trained: Trained, arrays: Arrays, columns: Array) -> None:
        """``columns`` (parts, positions, columns) are samples of the product's inputs."""
        self._trained = trained
        rows = self._rows(arrays)
        kept = rows != 0
        if trained.bias is not None:
            kept[:, :, -1] = True
            columns = np.concatenate([columns, np.ones((*columns.shape[:2], 1), np.float32)], axis=2)
        second = np.matmul(columns.transpose(0, 2, 1), columns).astype(np.float64) / columns.shape[1]
        self._white = Coordinates(rows, kept, second)
        self.weights, self.size = self._white.picked(rows), self._white.size

    def gradient(self, gradients: Arrays) -> Array:
        """The gradient in these coordinates."""
        return self._white.gradient(self._rows(gradients))

    def moved(self, weights: Array, step: Array) -> Array:
        """``weights``, which are as they are, after a step in these coordinates."""
        return np.asarray(weights - self._white.step(step))

    def store(self, weights: Array, arrays: Arrays) -> None:
        """Write the weight and the bias."""
        rows, trained = self._white.spread(weights), self._trained
        if trained.bias is not None:
            arrays[trained.bias] = np.ascontiguousarray(rows[:, :, -1]).reshape(arrays[trained.bias].shape)
            rows = rows[:, :, :-1]
        shape = arrays[trained.weight].shape
        made = rows[0].T if self._turned else rows.reshape(shape)
        arrays[trained.weight] = np.ascontiguousarray(made)

    @property
    def _turned(self) -> bool:
        node = self._trained.product.node
        return node.op_type != "Conv" and not node.attributes.get_int("transB", 0)

    def _rows(self, arrays: Arrays) -> Array:
        """(parts, rows, columns), with the bias as the last column where there is one."""
        trained, weight = self._trained, arrays[self._trained.weight]
        groups = trained.product.node.attributes.get_int("group", 1) if trained.product.node.op_type == "Conv" else 1
        rows = weight.T[None] if self._turned else weight.reshape(groups, weight.shape[0] // groups, -1)
        if trained.bias is None:
            return rows
        return np.concatenate([rows, arrays[trained.bias].reshape(*rows.shape[:2], 1)], axis=2)


def _times(matrices: Array, vectors: Array, *, turned: bool = False) -> Array:
    """Each matrix times its vector; a matrix of one column is a diagonal."""
    if matrices.shape[-1] == 1:
        return np.asarray(matrices[..., 0] * vectors)
    return np.asarray(np.matmul(matrices.swapaxes(2, 3) if turned else matrices, vectors[..., None])[..., 0])
