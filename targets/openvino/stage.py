"""Canonical ONNX → OpenVINO's IR."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import ToolError, Unsupported
from convertkit.onnx.classical import with_labels, without_classical
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.onnx.unsigned import make_unsigned
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.openvino.forms import write_exact_forms
from convertkit.targets.openvino.inspection import kernels
from convertkit.targets.openvino.integers import hold_integers
from convertkit.targets.openvino.ir import keep_ties_in_order, write_ir
from convertkit.targets.openvino.padded_averages import write_as_convolutions
from convertkit.targets.openvino.products import fold_zero_points, products_of_activations
from convertkit.targets.openvino.readme import readme
from convertkit.targets.openvino.repeated_pairs import drop_repeated_pairs, round_behind_pools
from convertkit.targets.openvino.rows import write_scans
from convertkit.targets.openvino.rules import apply_rules
from convertkit.targets.openvino.runtime import read_ir

_INTEGER_KERNELS = Tolerance(
    "the same integers, layer by layer; behind single float roundings, depth makes more of them",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
)


class WriteIr:
    """Writes ``model.xml`` and ``model.bin``."""

    name = "openvino"
    version = "7"
    accepts = frozenset({"onnx"})
    produces = "openvino"

    def __init__(self, precision: str) -> None:
        self._precision = precision
        self.tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        return {"precision": self._precision}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """OpenVINO reads the ONNX; ``Unsupported`` names the node that it does not take."""
        model = load_own(source.path)
        without_classical(model)
        apply_rules(model)
        notes = hold_integers(model)
        write_exact_forms(model)
        write_scans(model)
        write_as_convolutions(model)
        drop_repeated_pairs(model)
        round_behind_pools(model)
        make_unsigned(model, signed=products_of_activations(model))
        fold_zero_points(model)
        drop_zero_points(model)
        self.tolerance = _tolerance(model, short_integers=bool(notes))
        path = workdir / "model.xml"
        with tempfile.TemporaryDirectory(prefix="convertkit-openvino-") as place:
            onnx = Path(place) / "model.onnx"
            made = save_model(model, onnx, f"{self.name} {self.version}", source.initial_state)
            try:
                read = read_ir(onnx)
            except ToolError as error:
                raise _refusal(model, str(error), str(error.__cause__)) from error
            keep_ties_in_order(read)
            write_ir(read, path, frozenset(_names(model)))
        found = kernels(path) if self.tolerance is _INTEGER_KERNELS else {}
        told = {**({"kernels": found} if found else {}), **({"notes": list(notes)} if notes else {})}
        self.diagnosis = told or None
        (workdir / "README.md").write_text(readme(self._precision, found), encoding="utf-8")
        made = with_labels(made, source)
        return replace(made, path=path, format=self.produces, sha256=sha256_of(path))


def drop_zero_points(model: ir.Model) -> int:
    """Leave out the zero points of weights where all are 0, in place: each would be three nodes; how many."""
    dropped = 0
    for node in model.graph.all_nodes():
        weight, _, zero = (*node.inputs, None, None)[:3] if node.op_type == "DequantizeLinear" else (None, None, None)
        known = None if weight is None or weight.const_value is None or zero is None else zero.const_value
        if known is not None and not known.numpy().astype(np.int32).any():
            node.replace_input_with(2, None)
            dropped += 1
    RemoveUnusedNodesPass()(model)
    return dropped


def _tolerance(model: ir.Model, *, short_integers: bool) -> Tolerance:
    if any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes()):
        return _INTEGER_KERNELS
    return replace(FLOAT32, short_integers=short_integers)


def _names(model: ir.Model) -> Iterator[str]:
    """Names of nodes and values, which are the model's own."""
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from (str(value.name) for value in (*graph.inputs, *graph.initializers.values()))
        for node in graph:
            yield from (str(name) for name in (node.name, *(value.name for value in node.outputs)) if name)


def _refusal(model: ir.Model, reason: str, full: str) -> Unsupported:
    """Of the node whose operator OpenVINO does not know, or whose form it does not take, by its own ``full`` words."""
    nodes = tuple(model.graph.all_nodes())
    made = [node for node in nodes if any(f"({node.op_type}): {value.name}>" in full for value in node.outputs)]
    named = [node for node in nodes if node.name and node.name in full]
    known = [node for node in nodes if f"{node.op_type}-" in full]
    node = next(iter((*made, *named, *known)), None)
    subject = "" if node is None else f"{node.name} ({node.op_type})"
    return Unsupported(reason, subject=subject, ways_out=("--target onnxruntime",))


_: type[Stage] = WriteIr
