"""TensorFlow Lite (LiteRT): phones, small boards, microcontrollers; written without TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.devices import DEVICES, LIKELY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from convertkit.artifact import Artifact
    from convertkit.operators import Estimate, Memory, Operator, Zeros
    from convertkit.profile import QuantProfile
    from convertkit.recipe import MeasuredDevice
    from convertkit.stage import BuildContext, Stage


class TfliteTarget:
    """Delivers ``model.tflite`` for LiteRT, XNNPACK and TFLite Micro."""

    name = "tflite"
    summary = "TensorFlow Lite (LiteRT), model.tflite"
    extra = "tflite"
    precisions = ("float32", "fp16", "int8", "int16x8", "w8", "w4")
    runs_here = True
    devices = DEVICES
    likely_devices = LIKELY
    reads = frozenset({"--io-dtype", "--device", "--input-layout", "--description", "--label-file", "--normalization"})

    def profile(self, options: ExportOptions) -> QuantProfile:
        """How integer kernels want the QDQ graph."""
        from convertkit.targets.tflite.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to FlatBuffer; ``MissingFramework`` where LiteRT is not installed."""
        try:
            from convertkit.targets.tflite.stage import CompileTflite
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in ("ai_edge_litert", "flatbuffers"):
                raise MissingFramework("ai-edge-litert", "tflite") from error
            raise
        return (CompileTflite(context.options),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the file."""
        from convertkit.targets.tflite.inspection import operators

        return operators(artifact.path)

    def estimates(self, artifact: Artifact, devices: Sequence[str]) -> tuple[Estimate, ...]:
        """What one call takes on each device, by its cost table."""
        from convertkit.targets.tflite.costs.estimate import estimates

        return estimates(artifact.path, devices)

    def machine(self) -> Mapping[str, str]:
        """The processor, and LiteRT's version."""
        from convertkit.targets.forms.machine import machine

        return machine("ai-edge-litert")

    def measure_here(self) -> str:
        """The tables of this machine as JSON."""
        import json

        from convertkit.targets.tflite.costs.measured.here import measured_tables

        return json.dumps(measured_tables())

    def estimate_here(self, artifact: Artifact, measured: MeasuredDevice) -> Estimate:
        """What one call takes by tables of this machine."""
        from convertkit.targets.tflite.costs.estimate import estimate_here

        return estimate_here(artifact.path, measured)

    def memory(self, artifact: Artifact) -> Memory | None:
        """What one instance holds while it is called, in XNNPACK."""
        from convertkit.targets.tflite.memory import memory

        return memory(artifact.path)

    def zeros(self, artifact: Artifact) -> Zeros:
        """Weights that are zero, and what sparse tensors would make of the file."""
        from convertkit.targets.tflite.zeros import zeros

        return zeros(artifact.path)


target = TfliteTarget()
