"""The step from canonical ONNX to ``model.mlpackage``."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.onnx.load import load_own
from convertkit.onnx.resampling import float32_tolerance
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.coreml.golden import Golden
from convertkit.targets.coreml.interface import RAISED, check_batch, settled
from convertkit.targets.coreml.options import Choices
from convertkit.targets.coreml.states import keeping
from convertkit.workers.process import Worker

SERVICE = "convertkit.targets.coreml.service:CoreMLService"

_INTEGER = Tolerance(
    "the same integers, computed in float32 between quantize and dequantize: sums round on their own",
    lsb=3.0,
    lsb_share=0.99,
    snr_db=20.0,
    same_integers=True,
)
_HALF = Tolerance(
    "float16 keeps eleven bits, and the runtimes round to it at other places", snr_db=40.0, warn_snr_db=50.0
)


class CompileCoreML:
    """Compiles ONNX (float or QDQ) into an ML program, in a worker process that holds coremltools."""

    name = "coreml"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "coreml"

    def __init__(
        self,
        choices: Choices,
        timeout_s: float | None = None,
        worker: Worker | None = None,
        calibration: FeedSource | None = None,
        seed: int = 0,
    ) -> None:
        """``worker`` is one that is there already; else each run starts its own."""
        self._calibration, self._seed = calibration, seed
        self._choices = choices
        self._timeout_s = timeout_s
        self._worker = worker
        self._tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def tolerance(self) -> Tolerance:
        """By what the last model computes in."""
        return self._tolerance

    @property
    def options(self) -> Mapping[str, object]:
        told = asdict(self._choices)
        told.pop("kept")  # as the model has them
        labels = told.pop("labels")
        if labels:
            told["labels"] = hashlib.sha256("\n".join(labels).encode()).hexdigest()
        return {**told, "seed": self._seed}

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for: the package is compiled, and nothing is run for golden vectors."""
        with tempfile.TemporaryDirectory(prefix="convertkit-coreml-") as place:
            self._compiled(source, Path(place) / "model.mlpackage")

    def _compiled(self, source: Artifact, path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """What the worker tells of the package that it has written, and notes about its state."""
        chosen, unkept = keeping(self._choices, source)
        self._choices = settled(chosen, source.inputs, source.outputs)
        if self._calibration is not None:
            check_batch(self._choices.sizes, source.inputs)
        params = {"model": str(source.path), "folder": str(path), "choices": asdict(self._choices)}
        with nullcontext(self._worker) if self._worker else Worker(SERVICE, timeout_s=self._timeout_s) as worker:
            return worker.call("compile", params, isolated=self._worker is not None).value, unkept

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Compile ``source`` and write ``model.mlpackage``."""
        path, asked = workdir / "model.mlpackage", self._choices
        told, unkept = self._compiled(source, path)
        raised = [RAISED] if self._choices.version > asked.version else []
        notes = [*told["notes"], *raised, *unkept]
        self.diagnosis = {"notes": notes} if notes else None
        float32 = replace(float32_tolerance(load_own(source.path)), short_integers=bool(told["notes"]))
        self._tolerance = _INTEGER if told["quantized"] else _HALF if told["halves"] else float32
        made = Artifact(
            path,
            self.produces,
            _specs(source.inputs, told["inputs"]),
            _specs(source.outputs, told["outputs"]),
            sha256_of(path),
            f"{self.name} {self.version}",
            source.initial_state,
        )
        computes_in = "int8" if told["quantized"] else "float16" if told["halves"] else "float32"
        golden = Golden(source, made, self._choices, self._tolerance)
        golden.write(self._calibration, self._seed, computes_in)
        return made


def _specs(before: Sequence[TensorSpec], ports: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """As the package has them; a scalar keeps its shape, which the runner knows how to feed."""
    return tuple(
        replace(
            spec,
            dtype=port["dtype"],
            shape=tuple(port["shape"]) if spec.shape else (),
            perm=_perm(spec, port),
            kept=port["kept"],
        )
        for spec, port in zip(before, ports, strict=True)
    )


def _perm(spec: TensorSpec, port: Mapping[str, Any]) -> tuple[int, ...]:
    """From the source's axes to the package's, by way of the graph's."""
    moved = tuple(port["perm"])
    return tuple(spec.perm[axis] for axis in moved) if spec.perm and moved else moved or spec.perm


_: type[Stage] = CompileCoreML
