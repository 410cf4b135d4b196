"""Canonical ONNX → a program of ExecuTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec, sha256_of
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_own
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.executorch.readme import readme
from convertkit.targets.executorch.runtime import COMPILER, SERVICE, runtime_name
from convertkit.workers.process import Worker

_INTEGER_KERNELS = Tolerance(
    "XNNPACK rounds each operator's integers on its own, and depth makes more of single roundings",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
)
_TYPES = frozenset({"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"})


class WriteProgram:
    """Writes ``model.pte``, in a worker process that holds PyTorch and ExecuTorch."""

    name = "executorch"
    version = "2"
    accepts = frozenset({"onnx"})
    produces = "executorch"

    def __init__(self, precision: str, timeout_s: float | None = None) -> None:
        self._precision, self._timeout_s = precision, timeout_s
        self.tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        return {"precision": self._precision, "compiler": runtime_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names the node that has no form in PyTorch, ``ToolError`` is what ExecuTorch says."""
        example = {spec.name: _zeros(spec) for spec in source.inputs}
        quantized = any(node.op_type == "QuantizeLinear" for node in load_own(source.path).graph)
        self.tolerance = _INTEGER_KERNELS if quantized else FLOAT32
        path = workdir / "model.pte"
        params = {"model": str(source.path), "program": str(path), "inputs": list(example)}
        with Worker(SERVICE, timeout_s=self._timeout_s, framework=COMPILER) as worker:
            told = worker.call("compile", params, example).value
        self.diagnosis = {"delegates": told["delegates"], "kernels": told["left"]}
        text = readme(source, self._precision, told["delegates"], told["left"])
        (workdir / "README.md").write_text(text, encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


def _zeros(spec: TensorSpec) -> Array:
    if spec.dtype not in _TYPES:
        raise Unsupported(
            f"ExecuTorch has no tensors of {spec.dtype}",
            subject=f"input {spec.name}",
            ways_out=("--target onnxruntime",),
        )
    return np.zeros([int(size) for size in spec.shape], spec.dtype)


_: type[Stage] = WriteProgram
