"""Weights as places in a small table, which ``--coreml-palette`` asks for: a step of ONNX to ONNX.

Each weight of convolutions, products and look-ups takes at most ``2 ** bits`` values, those that leave the least sum of
squares to the values it had.  The graph stays plain ONNX, so that this step is verified as any other; the compiler then
finds so few values in a weight and stores places and a table, which loses nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.stage import Stage, Tolerance

LEAST = 8
"""Times the table's length: below it a table saves nothing."""
_TAKEN: Mapping[str, tuple[int, ...]] = {
    "Conv": (1,), "ConvTranspose": (1,), "Gemm": (1,), "MatMul": (0, 1), "Gather": (0,),
}  # fmt: skip
_ROUNDS = 100
"""Of moving values to the middle of what they stand for."""
_SHORT, _BINS, _FEWEST = 16, 512, 16


@dataclass(slots=True)
class MakePalettes:
    """Weights of at most ``2 ** bits`` values."""

    bits: int
    diagnosis: Mapping[str, object] | None = None

    name = "palettes"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"
    tolerance = Tolerance("weights take the values of a table on purpose", snr_db=10.0, warn_snr_db=20.0, lossy=True)

    @property
    def options(self) -> Mapping[str, object]:
        return {"bits": self.bits}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the model with such weights; ``Unsupported`` where none is large enough for a table."""
        model = load_own(source.path)
        count = 2**self.bits
        taken = [value for value in _weights(model.graph) if _is_float(value) and _size(value) >= LEAST * count]
        if not taken:
            raise Unsupported(
                f"no weight of a convolution, product or look-up has the {LEAST * count} numbers from which on a table "
                f"of {self.bits} bits saves anything",
                ways_out=("leave --coreml-palette out", "--fp16"),
            )
        for value in taken:
            assert value.const_value is not None
            array = value.const_value.numpy()
            value.const_value = ir.Tensor(in_table(array, table_of(array, count)), name=value.name)
        share = sum(map(_size, taken)) / max(1, sum(_size(each) for each in model.graph.initializers.values()))
        note = f"weights are places in tables of {self.bits} bits: {len(taken)} of them, {100 * share:.0f} %"
        self.diagnosis = {"notes": [f"{note} of all numbers"]}
        return save_model(model, workdir / "palettes.onnx", f"{self.name} {self.version}", source.initial_state)


def table_of(array: Array, count: int) -> Array:
    """At most ``count`` values, ascending and of the type of ``array``, with small squares to its elements.

    Lloyd's algorithm on the sorted numbers.  It begins at the best table of numbers in bins, or where that takes long
    at places whose density is the cube root of the numbers', as that of the best table is.
    Source: P. F. Panter, W. Dite, *Quantization distortion in pulse-count modulation*, 1951.
    """
    values, weights = np.unique(array.astype(np.float64), return_counts=True)
    if values.size <= count:
        return values.astype(array.dtype)
    mass = np.concatenate([[0], np.cumsum(weights)])
    sums = np.concatenate([[0], np.cumsum(weights * values)])
    table = _best(values, weights, count) if count <= _SHORT else _dense(values, weights, count)
    for _ in range(_ROUNDS):
        ends = np.concatenate([[0], np.searchsorted(values, (table[1:] + table[:-1]) / 2), [values.size]])
        held = np.diff(mass[ends])
        means = np.diff(sums[ends]) / np.maximum(held, 1)
        moved = np.unique(np.where(held > 0, means, table))
        if moved.size == table.size and np.array_equal(moved, table):
            break
        table = _filled(moved, values, weights, count)
    return distinct(table.astype(array.dtype))


def palette_of(array: Array, bits: int) -> Array | None:
    """The values of a weight, ascending, the last one repeated up to ``2 ** bits``; None where there are more."""
    count = 2**bits
    if array.dtype.kind != "f" or array.size < LEAST * count:
        return None
    values = distinct(array)
    return np.pad(values, (0, count - values.size), mode="edge") if values.size <= count else None


def distinct(array: Array) -> Array:
    """Its values, ascending.

    In float32: NumPy 2.4.6 does not sort long arrays of float16 on processors with AVX-512 VBMI2, and ``np.unique`` of
    one has values twice.
    """
    return np.unique(array.astype(np.float32)).astype(array.dtype)


def _dense(values: Array, weights: Array, count: int) -> Array:
    held, edges = np.histogram(values, max(_FEWEST, min(_BINS, values.size // _FEWEST)), weights=weights)
    reached = np.concatenate([[0], np.cumsum(np.cbrt(held))])
    return np.unique(np.interp((np.arange(count) + 0.5) / count * reached[-1], reached, edges))


def _best(values: Array, weights: Array, count: int) -> Array:
    """The middles of the cut into ``count`` runs that leaves the least squares, found by dynamic programming."""
    at = np.floor(np.linspace(0, _BINS, values.size, endpoint=False)).astype(np.int64)
    if values.size > _BINS:
        at = np.minimum((values - values[0]) / (values[-1] - values[0]) * _BINS, _BINS - 1).astype(np.int64)
    _, first = np.unique(at, return_index=True)
    totals = [np.add.reduceat(each, first) for each in (weights, weights * values, weights * values**2)]
    mass, sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in totals)
    held = np.maximum(mass[None, :] - mass[:, None], 1e-30)
    left = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / held
    cost = np.where(np.tri(mass.size, k=0, dtype=bool), np.inf, left)  # of the run between two cuts
    least, cuts = cost[0], list[Array]()
    for _ in range(count - 1):
        each = least[:, None] + cost
        cuts.append(each.argmin(0))
        least = each.min(0)
    ends = [mass.size - 1]
    for back in reversed(cuts):
        ends.append(int(back[ends[-1]]))
    edges = np.array([0, *reversed(ends)])
    return np.asarray(np.diff(sums[edges]) / np.diff(mass[edges]))


def _filled(table: Array, values: Array, weights: Array, count: int) -> Array:
    """With the worst represented numbers, where fewer than ``count`` are left."""
    lacking = count - table.size
    if lacking <= 0:
        return table
    off = weights * (values - in_table(values, table)) ** 2
    return np.unique(np.concatenate([table, values[np.argsort(-off, kind="stable")[:lacking]]]))


def places_in(array: Array, table: Array) -> Array:
    """For each element of ``array`` the place of the nearest value of an ascending ``table``, the lower one of two."""
    middles = (table[1:].astype(np.float64) + table[:-1].astype(np.float64)) / 2
    return np.searchsorted(middles, array.astype(np.float64))


def in_table(array: Array, table: Array) -> Array:
    """``array`` with those values."""
    return np.asarray(table[places_in(array, table)])


def _weights(graph: ir.Graph) -> Iterator[ir.Value]:
    """Constants that only such nodes read, as their weights."""
    for value in graph.initializers.values():
        uses = list(value.uses())
        if uses and not value.is_graph_output() and all(
            not use.node.domain and use.idx in _TAKEN.get(use.node.op_type, ()) for use in uses
        ):  # fmt: skip
            yield value


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _size(value: ir.Value) -> int:
    return 0 if value.const_value is None else int(value.const_value.size)


_: type[Stage] = MakePalettes
