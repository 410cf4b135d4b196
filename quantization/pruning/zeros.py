"""Pruning: zeros in the weights, the rest corrected on calibration data where there is some.

Unstructured (``--prune 0.5``: that share of every layer's weights) or N:M (``--prune 2:4``: N of M
neighbours along the summed axis stay, the form that GPUs' sparse kernels take).  The zeros stay in
dense tensors: files shrink when compressed, and the parity of later steps is measured as ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array, Artifact
from convertkit.errors import UsageError
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.profile import OpRule, QuantProfile
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.graph.step import LossyStep
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.removal import PruneChannels
from convertkit.quantization.weights.patches import Moments, from_rows, has_rows, moments, weight_rows
from convertkit.quantization.weights.rounding import layer_snr_db, ordered_inverse
from convertkit.quantization.weights.tune import affordable
from convertkit.stage import BuildContext, FeedSource, Stage
from convertkit.state import initial_state

_LEAST_COLUMNS = 16
"""A row with fewer weights (depthwise kernels, first layers) has none to spare."""
_WEIGHTED = QuantProfile(
    "weights", "int8", False, {op: OpRule({1: 0}, bias=2, data=(0,)) for op in ("Conv", "Gemm")}
    | {"MatMul": OpRule({1: -1}, data=(0,))},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which weights may stay: ``keep`` of ``of`` neighbours, or a share of each row where ``of`` is 0."""

    share: float
    keep: int = 0
    of: int = 0


def pattern(text: str) -> Pattern:
    """Parse ``0.5`` or ``2:4``; ``UsageError`` for anything else."""
    if match := re.fullmatch(r"(\d+):(\d+)", text):
        keep, of = map(int, match.groups())
        if 0 < keep < of:
            return Pattern(1 - keep / of, keep, of)
    elif re.fullmatch(r"0?\.\d+", text) and 0 < float(text) < 1:
        return Pattern(float(text))
    raise UsageError(f"--prune {text}: expected a share between 0 and 1, or N:M such as 2:4")


def mask(rows: Array, saliency: Array, wanted: Pattern) -> Array:
    """True where a weight stays; ``rows`` is (groups, rows, columns)."""
    if not wanted.of:
        removed = int(rows.shape[2] * wanted.share)
        ranks = saliency.argsort(axis=2, kind="stable").argsort(axis=2, kind="stable")
        return np.asarray(ranks >= removed)
    blocks = saliency.reshape(*rows.shape[:2], -1, wanted.of)
    ranks = blocks.argsort(axis=3, kind="stable").argsort(axis=3, kind="stable")
    return np.asarray((ranks >= wanted.of - wanted.keep).reshape(rows.shape))


def sparse(rows: Array, wanted: Pattern, found: Moments | None) -> Array:
    """Rows with zeros; with moments, the weights that stay make up for those that go.

    Source: the column by column correction of SparseGPT (arXiv:2301.00774), the mask chosen beforehand.
    """
    if found is None:
        return np.where(mask(rows, np.abs(rows), wanted), rows, 0.0)
    order = np.broadcast_to(np.arange(rows.shape[2]), (rows.shape[0], rows.shape[2]))
    upper = ordered_inverse(found.second, order)
    diagonal = np.diagonal(upper, axis1=1, axis2=2)[:, None, :]
    stays = mask(rows, np.square(rows / diagonal), wanted)
    rest = rows.astype(np.float64)
    for column in range(rows.shape[2]):
        error = rest[:, :, column] * ~stays[:, :, column] / upper[:, column, column, None]
        rest[:, :, column:] -= error[:, :, None] * upper[:, None, column, column:]
    return np.where(stays, rest, 0.0)


@dataclass(slots=True)
class PruneWeights(LossyStep):
    """Sets weights to zero, layer by layer."""

    wanted: Pattern
    text: str
    calibration: FeedSource | None = None
    seed: int = 0

    name = "prune"

    @property
    def options(self) -> Mapping[str, object]:
        return {"prune": self.text, "calibrated": self.calibration is not None}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the pruned model; ``diagnosis`` holds each layer's share of zeros and SNR."""
        model = load_model(source.path)
        prepare(model)
        units = [unit for unit in find_units(model.graph, _WEIGHTED) if self._prunable(unit)]
        known: Mapping[str, Moments] = {}
        if self.calibration is not None and units:
            self.progress.status("pruning")
            rng = np.random.default_rng(self.seed)
            known = moments(model, affordable(units), split(self.calibration)[1], initial_state(source), rng)
        self.diagnosis = {"layers": [self._prune(model.graph, unit, known.get(unit.name)) for unit in units]}
        drop_unused(model.graph)
        return save_model(model, workdir / "pruned.onnx", f"{self.name} {self.version}", source.initial_state)

    def _prunable(self, unit: Unit) -> bool:
        if not has_rows(unit):
            return False
        columns = weight_rows(unit).shape[2]
        return bool(columns >= _LEAST_COLUMNS and (not self.wanted.of or columns % self.wanted.of == 0))

    def _prune(self, graph: ir.Graph, unit: Unit, found: Moments | None) -> Mapping[str, object]:
        index, value = unit.weight_or_fail
        rows = weight_rows(unit)
        kept = sparse(rows, self.wanted, found)
        unit.node.replace_input_with(index, add_constant(graph, f"{value.name}_pruned", _float32(unit, kept)))
        level = None if found is None else layer_snr_db(rows, kept, found)
        return {"name": unit.name, "zeros": float((kept == 0).mean()), "snr_db": level}


def _float32(unit: Unit, rows: Array) -> Array:
    return from_rows(unit, rows.astype(np.float32))


def build(context: BuildContext) -> Stage | None:
    """The stage for ``--prune`` or ``--prune-channels``."""
    options = context.options
    if options.prune is not None and options.prune_channels is not None:
        raise UsageError("--prune and --prune-channels exclude each other")
    if options.prune_channels is not None:
        return PruneChannels(options.prune_channels, context.calibration, options.seed, progress=context.progress)
    if options.prune is None:
        return None
    return PruneWeights(
        pattern(options.prune), options.prune, context.calibration, options.seed, progress=context.progress
    )
