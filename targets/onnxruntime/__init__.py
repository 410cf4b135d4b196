"""ONNX Runtime on servers and desktops: the portable ``.onnx``, float or QDQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, values
from convertkit.targets.onnxruntime.devices import DEVICES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from convertkit.artifact import Artifact
    from convertkit.onnx.providers import Provider
    from convertkit.operators import Estimate, Operator
    from convertkit.profile import QuantProfile
    from convertkit.recipe import MeasuredDevice
    from convertkit.stage import BuildContext, Stage


IR_VERSIONS = tuple(range(4, 14))
"""What ``--onnxruntime-ir-version`` may ask for: in 3, weights are inputs; 13 is the newest that ONNX Runtime takes."""


class OnnxRuntimeTarget:
    """Delivers ``model.onnx`` that ONNX Runtime's default session runs."""

    name = "onnxruntime"
    summary = "ONNX Runtime, portable model.onnx (float or QDQ)"
    extra = "core"
    precisions = ("float32", "fp16", "int8", "w8", "w4")
    runs_here = True
    devices = DEVICES
    likely_devices = ()
    device_precisions = ("int8",)
    reads = frozenset({"--opset", "--device"})
    options = (
        TargetOption(
            "ir-version",
            int,
            "Version of the file format, for an older ONNX Runtime",
            metavar="N",
            choices=IR_VERSIONS,
        ),
        TargetOption(
            "cpu",
            str,
            "Processors that run the file: any, or only those with VNNI, which take signed weights of full range",
            default="any",
            choices=("any", "vnni"),
            quantizes=True,
        ),
    )

    def profile(self, options: ExportOptions) -> QuantProfile:
        from convertkit.targets.onnxruntime.profile import profile

        return profile(options, byte_sums=values(self, options)["cpu"] == "any")

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        from convertkit.targets.onnxruntime.stage import DeliverOnnx

        options = context.options
        asked = context.target_options
        any_cpu = asked["cpu"] == "any"
        return (
            DeliverOnnx(
                options.opset,
                options.precision,
                asked["ir-version"],
                any_cpu=any_cpu,
                devices=options.device,
                measured=options.measured_of(self.name),
            ),
        )

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the file."""
        from convertkit.onnx.inspection import operators

        return operators(artifact.path)

    def estimates(self, artifact: Artifact, devices: Sequence[str]) -> tuple[Estimate, ...]:
        """What one call takes on each device, by its cost table."""
        from convertkit.targets.onnxruntime.estimate import estimates

        return estimates(artifact.path, devices)

    def machine(self) -> Mapping[str, str]:
        """The processor, and ONNX Runtime's version."""
        from convertkit.targets.forms.machine import machine

        return machine("onnxruntime")

    def measure_here(self) -> str:
        """The table of this machine as JSON."""
        import json

        from convertkit.targets.onnxruntime.measured.here import measured_tables

        return json.dumps(measured_tables())

    def estimate_here(self, artifact: Artifact, measured: MeasuredDevice) -> Estimate:
        """What one call takes by the table of this machine."""
        from convertkit.targets.onnxruntime.estimate import estimate_here

        return estimate_here(artifact.path, measured)

    def providers(self) -> tuple[Provider, ...]:
        """The execution providers that publish which operators they take; TensorRT's asks TensorRT's parser."""
        from convertkit.targets.onnxruntime.providers import providers
        from convertkit.targets.tensorrt.capability import ParserProvider

        return (*providers(), ParserProvider())


target = OnnxRuntimeTarget()
