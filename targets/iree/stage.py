"""Canonical ONNX → modules of IREE."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import ToolError, Unsupported
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.iree.forms import write_exact_forms
from convertkit.targets.iree.platforms import ANY_CPU, PLATFORMS
from convertkit.targets.iree.readme import readme
from convertkit.targets.iree.runtime import ENTRY, SERVICE, runtime_name
from convertkit.workers.elsewhere import Elsewhere
from convertkit.workers.process import Worker

_INTEGERS = Tolerance(
    "the same integers, layer by layer; behind single float roundings, depth makes more of them",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
)
_TYPES = frozenset({"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"})


class CompileModule:
    """Writes ``model.vmfb``, and ``model-PLATFORM.vmfb`` for each further platform, in a worker of the engine."""

    name = "iree"
    version = "7"
    accepts = frozenset({"onnx"})
    produces = "iree"

    def __init__(self, cpu: str, also: tuple[str, ...], elsewhere: Elsewhere, timeout_s: float | None = None) -> None:
        self._cpu, self._also = cpu, also
        self._elsewhere, self._timeout_s = elsewhere, timeout_s
        self.tolerance: Tolerance = FLOAT32

    @property
    def options(self) -> Mapping[str, object]:
        return {"cpu": self._cpu, "also": list(self._also), "compiler": runtime_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names the node that IREE does not compile, ``ToolError`` is what its importer says."""
        for spec in (*source.inputs, *source.outputs):
            if spec.dtype not in _TYPES:
                ways = ("--target onnxruntime",)
                raise Unsupported(f"IREE has no tensors of {spec.dtype}", subject=spec.name, ways_out=ways)
        model = load_own(source.path)
        model.graph.name = ENTRY
        write_exact_forms(model)
        quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes())
        self.tolerance = _INTEGERS if quantized else FLOAT32
        path = workdir / "model.vmfb"
        with tempfile.TemporaryDirectory(prefix="convertkit-iree-") as place:
            made = save_model(model, Path(place) / "model.onnx", f"{self.name} {self.version}", source.initial_state)
            with Worker(SERVICE, timeout_s=self._timeout_s, elsewhere=self._elsewhere) as worker:
                worker.call("read", {"model": str(made.path)})
                self._compile(worker, model, path, self._cpu, "")
                for each in self._also:
                    self._compile(worker, model, workdir / f"model-{each}.vmfb", ANY_CPU, PLATFORMS[each])
        (workdir / "README.md").write_text(readme(source, self._cpu, self._also), encoding="utf-8")
        return replace(made, path=path, format=self.produces, sha256=sha256_of(path))

    def _compile(self, worker: Worker, model: ir.Model, path: Path, cpu: str, triple: str) -> None:
        refusal = worker.call("compile", {"module": str(path), "cpu": cpu, "triple": triple}).value
        if refusal is not None:
            raise _refused(model, refusal)


def _refused(model: ir.Model, refusal: Mapping[str, Any]) -> Unsupported | ToolError:
    """Of the node that the compiler names, where it does."""
    kind, place, reason = refusal["operator"], refusal["place"], refusal["reason"]
    nodes = [each for each in model.graph if each.op_type == kind]
    if place >= len(nodes):
        return ToolError(f"IREE does not compile the model: {reason}")
    node = nodes[place]
    subject = f"{node.name} ({node.op_type})"
    return Unsupported(f"IREE does not compile it: {reason}", subject=subject, ways_out=("--target onnxruntime",))


_: type[Stage] = CompileModule
