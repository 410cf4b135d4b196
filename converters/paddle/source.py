"""An opened model of PaddlePaddle: this side of the worker that holds it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.converters.paddle.engine import engine
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize, freeze_dims
from convertkit.onnx.inputs import fixed_sizes, with_input_options
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.onnx.specs import interface
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Stage, Tolerance
from convertkit.workers.elsewhere import Elsewhere
from convertkit.workers.process import Worker

SERVICE = "convertkit.converters.paddle.service:PaddleService"
_OLDER: Mapping[str, str] = {"FLAGS_enable_pir_api": "0"}
"""Read when PaddlePaddle is imported: with it, it loads programs of the form before PIR."""


class PaddleSource:
    """Executed by PaddlePaddle, exported by Paddle2ONNX, both in the environment of the engine."""

    def __init__(self, path: Path, options: ExportOptions, workdir: Path, there: Elsewhere) -> None:
        form = _OLDER if path.suffix == ".pdmodel" else {}
        self._worker = Worker(SERVICE, timeout_s=options.timeout_s, env=form, elsewhere=there)
        folder = workdir / "paddle"
        names: list[str] = self._worker.call("open", {"model": str(path), "folder": str(folder)}).value
        self._exported = folder / "exported.onnx"
        self._worker.call("convert", {"to": str(self._exported)})
        inputs, outputs = interface(_named(load_model(self._exported)))
        if sorted(names) != sorted(spec.name for spec in inputs):
            raise Unsupported(f"Paddle2ONNX gives the inputs {[spec.name for spec in inputs]}, the model has {names}")
        specs = with_input_options(inputs, options.inputs)
        self._sizes, self._names = fixed_sizes(inputs, specs), names
        digest = hashlib.sha256((sha256_of(path) + sha256_of(path.with_suffix(".pdiparams"))).encode()).hexdigest()
        self.artifact = Artifact(path, "paddle", specs, outputs, digest)
        self.notes = (f"executed by {engine.version('paddlepaddle')}, exported by {engine.version('paddle2onnx')}",)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def runner(self) -> Runner:
        return PaddleRunner(self._worker, self.artifact, self._names)

    def stage(self) -> Stage:
        return PaddleStage(self._exported, self._sizes)


class PaddleRunner:
    """The loaded model; the worker outlives it."""

    def __init__(self, worker: Worker, artifact: Artifact, names: list[str]) -> None:
        self._worker, self._artifact, self._names = worker, artifact, names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed: PaddlePaddle gives them in the order in which the file has them."""
        given = {name: feed[name] for name in self._names}
        found = self._worker.call("run", {"inputs": self._names}, given).arrays
        if len(found) != len(self._artifact.outputs):
            raise Unsupported(f"the model gives {len(found)} outputs, its ONNX {len(self._artifact.outputs)}")
        return {spec.name: found[str(place)] for place, spec in enumerate(self._artifact.outputs)}


class PaddleStage:
    """What Paddle2ONNX wrote → canonical ONNX."""

    name = "paddle-to-onnx"
    version = "1"
    accepts = frozenset({"paddle"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32

    def __init__(self, exported: Path, sizes: Mapping[str, int]) -> None:
        self._exported, self._sizes = exported, dict(sizes)

    @property
    def options(self) -> Mapping[str, object]:
        return {"exporter": engine.version("paddle2onnx"), **({"fixed_dims": self._sizes} if self._sizes else {})}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = _named(load_model(self._exported))
        if self._sizes:
            freeze_dims(model, self._sizes)
        return save_model(canonicalize(model), workdir / "model.onnx", f"{self.name} {self.version}")


def _named(model: ir.Model) -> ir.Model:
    """``DynamicDimension.0`` as a name that ``--static`` can say, in place."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        dims = [each if isinstance(each, int) else _plain(each.value) for each in value.shape or ()]
        if value.shape is not None:
            value.shape = ir.Shape(dims)
    return model


def _plain(name: str | None) -> str | None:
    return None if name is None else name.replace("DynamicDimension.", "dynamic_")
