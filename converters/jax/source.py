"""An opened JAX source: the parent's side of the worker that holds the program."""

from __future__ import annotations

import hashlib
import importlib.util
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.errors import MissingFramework, SourceError, WorkerError
from convertkit.onnx.inputs import fixed_sizes, with_input_options
from convertkit.recipe import ExportOptions
from convertkit.references import module_file
from convertkit.stage import Runner, Stage, Tolerance
from convertkit.workers.process import Worker
from convertkit.workers.runner import OpenedRunner

_READER: Mapping[int, str] = {
    signal.SIGPROF: "MLIR's reader does not come to an end",
    signal.SIGSEGV: "MLIR's reader crashes",
    signal.SIGBUS: "MLIR's reader crashes",
    signal.SIGABRT: "MLIR's reader gives up",
}
"""By the signal that ends a worker while it opens an artifact; the first is the service's own bound."""
_ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
PARITY = Tolerance("the same arithmetic in another order, on another runtime", relative=1e-5)
HALF_PARITY = {
    "bfloat16": Tolerance("the program rounds to bfloat16 as it goes, XLA where it fuses less often", relative=1e-2),
    "float16": Tolerance("the program rounds to float16 as it goes, XLA where it fuses less often", relative=1e-3),
}


QUANTIZED_PARITY = Tolerance(
    "a tie, or a float32 sum beside one, rounds to either integer: single steps that depth widens",
    lsb=1,
    snr_db=20,
    lossy=True,
)


class JaxSource:
    """A ``jax.export`` artifact, a StableHLO module or a JAX callable, held by JAX in a worker."""

    def __init__(self, source: str, kind: str, options: ExportOptions, workdir: Path) -> None:
        for name in ("jax", "jaxlib"):
            if importlib.util.find_spec(name) is None:
                raise MissingFramework(name, "jax")
        self._worker = Worker(
            "convertkit.converters.jax.service:JaxService", timeout_s=options.timeout_s, env=_ENVIRONMENT
        )
        wanted = [[each.name, each.shape, each.dtype] for each in options.inputs]
        opened = _opened(self._worker, {"source": source, "kind": kind, "inputs": wanted})
        inputs, outputs = (tuple(_spec(*each) for each in opened[side]) for side in ("inputs", "outputs"))
        specs = with_input_options(inputs, options.inputs)
        self._sizes = {**fixed_sizes(inputs, specs), **dict(options.static)}
        half = HALF_PARITY.get(opened["half_precision"], PARITY)
        self._tolerance = QUANTIZED_PARITY if opened["quantized"] else half
        self.notes = tuple(str(note) for note in opened["notes"])
        self.known_sizes: Mapping[str, Sequence[int]] = opened["sizes"]
        file = module_file(source.partition(":")[0]) if kind == "jax-callable" else Path(source)
        assert file is not None, "the converter recognised the module by its file"
        digest = sha256_of(file) if kind != "jax-callable" else _digest(source, file)
        self.artifact = Artifact(file, kind, specs, outputs, digest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def runner(self) -> Runner:
        return OpenedRunner(self._worker, self.artifact)

    def stage(self) -> Stage:
        return JaxStage(self._worker, self.artifact.format, self._sizes, self._tolerance)


class JaxStage:
    """StableHLO → canonical ONNX."""

    name = "stablehlo-to-onnx"
    version = "1"
    produces = "onnx"

    def __init__(self, worker: Worker, kind: str, sizes: Mapping[str, int], tolerance: Tolerance = PARITY) -> None:
        self._worker = worker
        self.tolerance = tolerance
        self._sizes = dict(sizes)
        self.accepts = frozenset({kind})

    @property
    def options(self) -> Mapping[str, object]:
        return {"fixed_dims": self._sizes} if self._sizes else {}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        path, made_by = workdir / "model.onnx", f"{self.name} {self.version}"
        # All in the worker: the weights go from the module's memory to the file, and nowhere else.
        made = self._worker.call("convert", {"path": str(path), "sizes": self._sizes, "made_by": made_by}).value
        inputs, outputs = (tuple(_spec(*each) for each in made[side]) for side in ("inputs", "outputs"))
        return Artifact(path, "onnx", inputs, outputs, made["sha256"], made_by)


def _opened(worker: Worker, params: Mapping[str, Any]) -> Any:
    """The artifact's interface; raises ``SourceError`` where MLIR's reader ends the worker instead."""
    try:
        return worker.call("open", params).value
    except WorkerError as error:
        if params["kind"] == "jax-callable" or error.ended_by not in _READER:
            raise
        raise SourceError(f"{params['source']} is damaged or nested too deeply: {_READER[error.ended_by]}") from None


def _spec(name: str, shape: list[Any], dtype: str, lsb: float | None, integers: list[int] | None) -> TensorSpec:
    values = None if integers is None else (float(integers[0]), float(integers[1]))
    return TensorSpec(name, tuple(shape), dtype, value_range=values, lsb=lsb)


def _digest(source: str, file: Path) -> str:
    """Identity of a callable: its reference and its module's file."""
    return hashlib.sha256(source.encode() + b"\0" + file.read_bytes()).hexdigest()
