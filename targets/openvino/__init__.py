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
            "cpu",
            str,
            "Processors that run the file: any, or only those with VNNI, which take int8 weights of full range",
            default="any",
            choices=("any", "vnni"),
            quantizes=True,
        ),
    )

    def check(self, options: ExportOptions) -> None:
        """Raise ``UsageError`` for processors of int8 weights where there are none."""
        cpu = values(self, options)["cpu"]
        if "cpu" in chosen(self, options) and options.precision != "int8" and options.budget is None:
            raise UsageError(f"--openvino-cpu {cpu} is about int8 weights; it goes with --int8")

    def profile(self, options: ExportOptions) -> QuantProfile:
        """What the plugins' integer kernels take."""
        from convertkit.targets.openvino.profile import profile

        return profile(options, byte_sums=values(self, options)["cpu"] == "any")

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
