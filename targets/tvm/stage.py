"""Canonical ONNX → shared libraries of TVM."""

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
from convertkit.targets.tvm.forms import write_forms
from convertkit.targets.tvm.platforms import PLATFORMS, here, linker
from convertkit.targets.tvm.readme import readme
from convertkit.targets.tvm.runtime import SERVICE, runtime_name
from convertkit.workers.elsewhere import Elsewhere
from convertkit.workers.process import Worker

_TYPES = frozenset({"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"})
_WAYS_OUT = ("--target onnxruntime", "--target iree")


class CompileLibrary:
    """Writes ``model.so``, and ``model-PLATFORM.so`` for each further platform, in a worker of the engine."""

    name = "tvm"
    version = "3"
    accepts = frozenset({"onnx"})
    produces = "tvm"
    tolerance: Tolerance = FLOAT32

    def __init__(self, cpu: str, also: tuple[str, ...], elsewhere: Elsewhere, timeout_s: float | None = None) -> None:
        self._cpu, self._also = cpu, also
        self._elsewhere, self._timeout_s = elsewhere, timeout_s

    @property
    def options(self) -> Mapping[str, object]:
        return {"cpu": self._cpu, "also": list(self._also), "compiler": runtime_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` for what TVM does not compile, ``ToolError`` where there is no linker."""
        for spec in (*source.inputs, *source.outputs):
            if spec.dtype not in _TYPES:
                raise Unsupported(f"TVM has no tensors of {spec.dtype}", subject=spec.name, ways_out=_WAYS_OUT)
        own = here()
        linkers = {name: linker(name) for name in (own, *self._also)}
        model, path = load_own(source.path), workdir / "model.so"
        write_forms(model)
        with tempfile.TemporaryDirectory(prefix="convertkit-tvm-") as place:
            made = save_model(model, Path(place) / "model.onnx", f"{self.name} {self.version}", source.initial_state)
            with Worker(SERVICE, timeout_s=self._timeout_s, elsewhere=self._elsewhere) as worker:
                _demand(model, worker.call("read", {"model": str(made.path)}).value)
                for name, found in linkers.items():
                    library = path if name == own else workdir / f"model-{name}.so"
                    chip = PLATFORMS[name]
                    cpu = self._cpu if name == own and self._cpu else chip.cpu
                    asked = {"library": str(library), "triple": chip.triple, "cpu": cpu, "linker": found}
                    _demand(model, worker.call("compile", asked).value)
        others = tuple(name for name in linkers if name != own)
        (workdir / "README.md").write_text(readme(source, own, self._cpu, others), encoding="utf-8")
        return replace(made, path=path, format=self.produces, sha256=sha256_of(path))


def _demand(model: ir.Model, refusal: Mapping[str, Any] | None) -> None:
    """Raise for a refusal, of the first node of the kind that it names."""
    if refusal is None:
        return
    reason = f"TVM does not compile it: {refusal['reason']}"
    node = next((each for each in model.graph if each.op_type == refusal["operator"]), None)
    if node is None:
        raise ToolError(f"TVM does not compile the model: {refusal['reason']}")
    raise Unsupported(reason, subject=f"{node.name} ({node.op_type})", ways_out=_WAYS_OUT)


_: type[Stage] = CompileLibrary
