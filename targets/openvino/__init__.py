"""OpenVINO: the IR (``model.xml`` and ``model.bin``) for Intel and Arm CPUs, Intel's GPUs and NPUs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, chosen, values

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class OpenVinoTarget:
    """Delivers ``model.xml`` and ``model.bin``, which OpenVINO's plugins compile where they run."""

    name = "openvino"
    summary = "OpenVINO (CPU, GPU and NPU plugins), model.xml and model.bin"
    extra = "openvino"
    precisions = ("float32", "fp16", "int8", "w8", "w4")
    runs_here = True
    reads = frozenset[str]()
    options = (
        TargetOption(
            "weight-bits",
            int,
            "Bits of int8 weights: with 7, no sum of two products exceeds int16, as it may on x86 without VNNI",
            metavar="N",
            default=7,
            choices=(7, 8),
            quantizes=True,
        ),
    )

    def check(self, options: ExportOptions) -> None:
        """Raise ``UsageError`` for bits of int8 weights where there are none."""
        bits = values(self, options)["weight-bits"]
        if "weight-bits" in chosen(self, options) and options.precision != "int8" and options.budget is None:
            raise UsageError(f"--openvino-weight-bits {bits} is about int8 weights; it goes with --int8")

    def profile(self, options: ExportOptions) -> QuantProfile:
        """What the plugins' integer kernels take."""
        from convertkit.targets.openvino.profile import profile

        return profile(options, values(self, options)["weight-bits"])

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to IR; ``MissingFramework`` where OpenVINO is not installed."""
        if find_spec("openvino") is None:
            raise MissingFramework("openvino", self.extra)
        from convertkit.targets.openvino.stage import WriteIr

        return (WriteIr(context.options.precision),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the IR."""
        from convertkit.targets.openvino.inspection import operators

        return operators(artifact.path)


target = OpenVinoTarget()
