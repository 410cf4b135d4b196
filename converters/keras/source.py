"""An opened Keras file: the parent's side of the worker that holds the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.errors import MissingFramework, Unsupported
from convertkit.onnx.inputs import with_input_options
from convertkit.onnx.load import load_model
from convertkit.onnx.specs import interface
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Runner, Stage, Tolerance
from convertkit.workers.process import Worker
from convertkit.workers.runner import OpenedRunner

_ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
_NEEDS = ("keras", "jax", "h5py")


class KerasSource:
    """A ``.keras`` or ``.h5`` file held by Keras on JAX in a worker."""

    def __init__(self, path: Path, options: ExportOptions, workdir: Path) -> None:
        self._notes: list[str] = []
        for name in _NEEDS:
            if importlib.util.find_spec(name) is None:
                raise MissingFramework(name, "keras")
        self._worker = Worker(
            "convertkit.converters.keras.service:KerasService", timeout_s=options.timeout_s, env=_ENVIRONMENT
        )
        params = {
            "path": str(path), "model": options.model, "trust": sorted(options.trust), "workdir": str(workdir),
        }  # fmt: skip
        opened = self._worker.call("open", params).value
        inputs = tuple(_spec(*each) for each in opened["inputs"])
        outputs = tuple(_spec(*each) for each in opened["outputs"])
        specs = with_input_options(inputs, options.inputs)
        self.known_sizes: Mapping[str, Sequence[int]] = {}
        if any(isinstance(dim, str) for spec in specs for dim in spec.shape[1:]):
            told = self._worker.call("sizes", {"shapes": {spec.name: list(spec.shape) for spec in specs}}).value
            pairs = (zip(spec.shape, told["shapes"][spec.name], strict=True) for spec in specs)
            same = {str(own): other for sizes in pairs for own, other in sizes if own != other}
            self._notes += [f"dynamic size {own} is {other}: the layers take no others" for own, other in same.items()]
            specs = tuple(replace(spec, shape=tuple(told["shapes"][spec.name])) for spec in specs)
            self.known_sizes = told["known"]
        self.artifact = Artifact(path, "keras", specs, outputs, sha256_of(path))
        if options.model is not None:
            self._notes.append(f"code of {options.model} was trusted and imported")
        elif "lambda" in options.trust:
            self._notes.append("Python code stored in the file was trusted (--trust lambda)")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was trusted, and which sizes the model takes."""
        return tuple(self._notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def runner(self) -> Runner:
        return OpenedRunner(self._worker, self.artifact)

    def stage(self) -> Stage:
        return KerasStage(self._worker, self._notes)


class KerasStage:
    """Keras → StableHLO → canonical ONNX."""

    name = "keras-to-onnx"
    version = "1"
    accepts = frozenset({"keras"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32
    options: Mapping[str, object] = {"route": "Keras on JAX, StableHLO"}

    def __init__(self, worker: Worker, notes: list[str]) -> None:
        """``notes`` takes what there is to say of the sizes."""
        self._worker = worker
        self._notes = notes

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        path = workdir / "model.onnx"
        made_by = f"{self.name} {self.version}"
        shapes = {spec.name: list(spec.shape) for spec in source.inputs}
        told = self._worker.call("convert", {"to": str(path), "made_by": made_by, "shapes": shapes}).value
        factor, least = told["factor"], told["least"]
        if least > factor:
            self._notes.append(f"dynamic sizes other than the batch are {least} or more: a layer compares them")
        self._notes += [f"dynamic sizes are so that {bound}: a layer compares them" for bound in told["bounds"]]
        if factor > 1:
            self._notes.append(
                f"dynamic sizes other than the batch are multiples of {factor}: the model takes no others"
            )
        inputs, outputs = interface(load_model(path))
        return Artifact(path, "onnx", inputs, outputs, sha256_of(path), made_by)


def _spec(name: str, shape: Sequence[int | None], dtype: str) -> TensorSpec:
    """A tensor of the model; a dynamic first dimension is the batch."""
    if dtype == "string":
        raise Unsupported(f"{name!r} holds strings; only numbers can cross an artifact's interface")
    dims = tuple(size if size is not None else f"{name}_{axis}" if axis else "batch" for axis, size in enumerate(shape))
    return TensorSpec(name, dims, dtype)
