"""ONNX Runtime on phones: the ``onnxruntime`` target's model as a ``.ort`` file, with what a reduced build needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime import target as onnxruntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from convertkit.artifact import Artifact
    from convertkit.operators import Estimate
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class OrtMobileTarget:
    """Delivers ``model.ort``, which full and minimal builds of ONNX Runtime load, and the operators that it needs."""

    name = "ort-mobile"
    summary = "ONNX Runtime on phones, model.ort with the operators of a reduced build"
    extra = "core"
    packages = onnxruntime.name
    precisions = (
        "float32",
        "int8",
        "w8",
    )  # ONNX Runtime writes float16 as float32 on x86; its list of types has no int4
    runs_here = True
    devices = onnxruntime.devices
    likely_devices = onnxruntime.likely_devices
    device_precisions = onnxruntime.device_precisions
    reads = onnxruntime.reads
    options = ()

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the ``onnxruntime`` target wants it, whose model this is."""
        return onnxruntime.profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``onnxruntime``."""
        from convertkit.targets.ort_mobile.stage import WriteOrt

        return (WriteOrt(context.options.precision),)

    def estimates(self, artifact: Artifact, devices: Sequence[str]) -> tuple[Estimate, ...]:
        """What one call takes on each device, by the cost table of the ``onnxruntime`` target."""
        return onnxruntime.estimates(artifact, devices)


target = OrtMobileTarget()
