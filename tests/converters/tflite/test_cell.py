"""LSTM cells of every kind against LiteRT's fused kernel."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

pytest.importorskip("ai_edge_litert")

from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.importer import to_onnx
from convertkit.converters.tflite.model import read_model

STEPS, FEATURES, UNITS, PROJECTED = 13, 3, 5, 4


@dataclass(frozen=True)
class Cell:
    """What a cell has beyond weights and biases."""

    cell_clip: float = 0.0
    proj_clip: float = 0.0
    activation: int = 4
    coupled: bool = False
    peepholes: bool = False
    projection: bool = False
    layer_norm: bool = False
    time_major: bool = False
    batch: int = 1


def tensors(cell: Cell, rng: np.random.Generator) -> list[object]:
    from handmade import T, const

    out = PROJECTED if cell.projection else UNITS

    def weights(*shape: int, scale: float = 1.5) -> object:
        return const(rng.standard_normal(shape) * scale)

    shape = (STEPS, cell.batch, FEATURES) if cell.time_major else (cell.batch, STEPS, FEATURES)
    w = [weights(UNITS, FEATURES) for _ in range(4)]
    r = [weights(UNITS, out) for _ in range(4)]
    peepholes = [weights(UNITS) if cell.peepholes else None for _ in range(3)]
    bias = [weights(UNITS, scale=2.0) for _ in range(4)]
    norm = [weights(UNITS) if cell.layer_norm else None for _ in range(4)]
    if cell.coupled:
        w[0] = r[0] = peepholes[0] = bias[0] = norm[0] = None
    projection = [weights(PROJECTED, UNITS), weights(PROJECTED)] if cell.projection else [None, None]
    states = [T((cell.batch, out), variable=True), T((cell.batch, UNITS), variable=True)]
    return [T(shape), *w, *r, *peepholes, *bias, *projection, *states, *norm]


def written(path: Path, cell: Cell) -> Path:
    from handmade import T, write

    inputs = tensors(cell, np.random.default_rng(3))
    out = PROJECTED if cell.projection else UNITS
    shape = (*inputs[0].shape[:2], out)
    options = {
        "fusedActivationFunction": cell.activation, "cellClip": cell.cell_clip, "projClip": cell.proj_clip,
        "timeMajor": cell.time_major,
    }  # fmt: skip
    return write(
        path / "cell.tflite", "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [T(shape)], options,
        "UnidirectionalSequenceLSTMOptions",
    )  # fmt: skip


@pytest.mark.parametrize(
    "cell",
    [
        Cell(), Cell(cell_clip=0.7), Cell(cell_clip=3.0, batch=2), Cell(cell_clip=20.0), Cell(activation=1),
        Cell(coupled=True), Cell(peepholes=True), Cell(peepholes=True, cell_clip=0.5), Cell(projection=True),
        Cell(projection=True, proj_clip=0.4, cell_clip=1.0), Cell(layer_norm=True), Cell(layer_norm=True, coupled=True),
        Cell(time_major=True, cell_clip=0.9, batch=2), Cell(coupled=True, peepholes=True, cell_clip=0.6),
    ],
)  # fmt: skip
def test_cells_compute_what_the_fused_kernel_does(tmp_path: Path, cell: Cell):
    from handmade import litert, ours

    path = written(tmp_path, cell)
    shape = tensors(cell, np.random.default_rng(3))[0].shape
    x = (np.random.default_rng(1).standard_normal(shape) * 2).astype("f")
    expected, got = litert(path, [x]), ours(path, [x])
    assert got[0].shape == expected[0].shape
    np.testing.assert_allclose(got[0], expected[0], rtol=0, atol=2e-6 * max(1.0, float(np.abs(expected[0]).max())))


def test_a_clip_that_no_cell_reaches_leaves_an_lstm(tmp_path: Path):
    """A cell grows by one with each step at most."""
    kinds = []
    for clip in (STEPS, STEPS - 1):
        model = read_model(written(tmp_path, replace(Cell(), cell_clip=float(clip))))
        kinds.append({node.op_type for node in to_onnx(model, model.signatures[0]).graph})
    assert "LSTM" in kinds[0]
    assert "Scan" not in kinds[0]
    assert "Scan" in kinds[1]


@dataclass(frozen=True)
class Both:
    """What a layer read in both directions has; ``time_major`` and ``merged`` say how it reads and writes.

    The fused kernel steps through the states of a merged, batch-major layer by the width of the merged output,
    so beyond the first sample it reads what lies behind them: no reference for such a layer with a larger batch.
    """

    cell_clip: float = 0.0
    peepholes: bool = False
    projection: bool = False
    time_major: bool = False
    merged: bool = True
    batch: int = 1


@pytest.mark.parametrize(
    "both",
    [
        Both(), Both(merged=False, batch=2), Both(time_major=True, batch=2), Both(time_major=True, merged=False),
        Both(cell_clip=0.7), Both(peepholes=True), Both(projection=True, merged=False, batch=2),
        Both(cell_clip=1.5, peepholes=True, time_major=True, batch=2),
    ],
)  # fmt: skip
def test_both_directions_compute_what_the_fused_kernel_does(tmp_path: Path, both: Both):
    from handmade import T, litert, ours, write

    rng = np.random.default_rng(3)
    cell = Cell(
        cell_clip=both.cell_clip, peepholes=both.peepholes, projection=both.projection,
        time_major=both.time_major, batch=both.batch,
    )  # fmt: skip
    forwards, backwards = tensors(cell, rng), tensors(cell, rng)
    inputs = [*forwards[:18], *backwards[1:18], *forwards[18:20], *backwards[18:20], *(None,) * 9]
    out = PROJECTED if both.projection else UNITS
    ends = [T((*forwards[0].shape[:2], out * 2))] if both.merged else [T((*forwards[0].shape[:2], out))] * 2
    options = {
        "fusedActivationFunction": cell.activation, "cellClip": cell.cell_clip, "timeMajor": cell.time_major,
        "mergeOutputs": both.merged,
    }  # fmt: skip
    path = tmp_path / "both.tflite"
    write(path, "BIDIRECTIONAL_SEQUENCE_LSTM", inputs, ends, options, "BidirectionalSequenceLSTMOptions")
    x = (rng.standard_normal(forwards[0].shape) * 2).astype("f")
    for one, other in zip(ours(path, [x]), litert(path, [x]), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6 * max(1.0, float(np.abs(other).max())))


def test_a_layer_behind_another_knows_its_sizes():
    """What moves axes back gives what was before, whose operator may tell no sizes: the file declares them."""
    b = Builder(lambda *_: (), {}, itertools.count())
    flat = b.op("Squeeze", [Tensor(ir.Value(name="y"), None, "float32"), b.constant([1])])
    assert flat.shape is None
    given = replace(b.transpose(flat, (1, 2, 0)), shape=(2, 4, 3))
    assert b.transpose(given, (2, 0, 1)).dims == (3, 2, 4)
