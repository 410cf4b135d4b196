"""The stage that turns canonical float ONNX into QDQ ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from convertkit.artifact import Artifact
from convertkit.errors import UsageError
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.parity.replay import initial_state
from convertkit.profile import QuantProfile
from convertkit.progress import Progress, Silent
from convertkit.quantization.existing import is_quantized, to_qdq
from convertkit.quantization.integers import Integers
from convertkit.recipe import ExportOptions
from convertkit.stage import LOSSY, BuildContext, FeedSource, Stage, Tolerance


@dataclass(slots=True)
class QuantizeIntegers:
    """Static integers for weights and activations, placed and calibrated for one target."""

    choices: ExportOptions
    profile: QuantProfile
    calibration: FeedSource
    progress: Progress = field(default_factory=Silent)
    diagnosis: Mapping[str, object] | None = None
    name: str = "quantize"
    version: str = "1"
    accepts: frozenset[str] = frozenset({"onnx"})
    produces: str = "onnx"
    tolerance: Tolerance = LOSSY

    @property
    def options(self) -> Mapping[str, object]:
        return {
            "profile": self.profile.name,
            "method": self.choices.calib_method,
            "full_integer": self.choices.full_integer,
            "calibration": self.calibration.description,
            "calibration_sha256": self.calibration.sha256,
            "samples": len(self.calibration),
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write ``quantized.onnx``; ``diagnosis`` is set afterwards."""
        model = load_model(source.path)
        if is_quantized(model):
            to_qdq(model)
        else:
            worker = Integers(model, self.profile, self.choices, self.calibration, initial_state(source), self.progress)
            model = worker.quantized()
            self.diagnosis = worker.diagnosis()
        return _saved(model, workdir, f"{self.name} {self.version}", source)


def build(context: BuildContext) -> Stage:
    """The stage that fits the options; ``UsageError`` where calibration data is missing."""
    profile = context.target.profile(context.options)
    if context.calibration is None:
        raise UsageError(f"--{context.options.precision} measures activation ranges and needs data: --calib PATH")
    return QuantizeIntegers(context.options, profile, context.calibration, context.progress)


def _saved(model: ir.Model, workdir: Path, made_by: str, source: Artifact) -> Artifact:
    return save_model(model, workdir / "quantized.onnx", made_by, source.initial_state)


_: type[Stage] = QuantizeIntegers
