"""Canonical QDQ ONNX → a context binary for Qualcomm's NPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.onnx.unsigned import make_unsigned
from convertkit.stage import Stage, Tolerance
from convertkit.targets.qnn.context import binary_of, refuse_fallback, sealed
from convertkit.targets.qnn.norms import write_norms
from convertkit.targets.qnn.pairs import place_pairs
from convertkit.targets.qnn.pools import write_averages
from convertkit.targets.qnn.readme import readme
from convertkit.targets.qnn.runtime import SERVICE, runtime_name
from convertkit.workers.process import Worker

_INTEGER = Tolerance(
    "the HTP's integer kernels round each operator on their own; softmax and depth amplify single roundings",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
    near_ties=0.06,  # docs/measurements/rounding.md: 0.057 of a step
)


class CompileContext:
    """Writes ``model.onnx`` and ``model_qnn.bin``, in a worker process that holds Qualcomm's libraries."""

    name = "qnn"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "qnn"
    tolerance = _INTEGER

    def __init__(self, soc: str, timeout_s: float | None = None) -> None:
        self._soc, self._timeout_s = soc, timeout_s

    @property
    def options(self) -> Mapping[str, object]:
        return {"soc": self._soc, "compiler": runtime_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names the nodes that the NPU does not take, ``ToolError`` is what QNN says."""
        model = load_own(source.path)
        write_averages(model)
        place_pairs(model)
        make_unsigned(model)
        write_norms(model)
        path = workdir / "model.onnx"
        with tempfile.TemporaryDirectory(prefix="convertkit-qnn-") as place:
            made = save_model(model, Path(place) / "model.onnx", f"{self.name} {self.version}", source.initial_state)
            params = {"model": str(made.path), "context": str(path), "soc": self._soc}
            with Worker(SERVICE, timeout_s=self._timeout_s) as worker:
                worker.call("compile", params)
            refuse_fallback(path if path.exists() else made.path)  # without a node for the NPU, nothing is written
        sealed(path, self._soc)
        text = readme(self._soc, binary_of(path).name)
        (workdir / "README.md").write_text(text, encoding="utf-8")
        return replace(made, path=path, format=self.produces, sha256=sha256_of(path))


_: type[Stage] = CompileContext
