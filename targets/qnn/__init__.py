"""Qualcomm's NPU (HTP): a context binary by ONNX Runtime's QNN execution provider, verified in the HTP simulator."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.qnn.devices import SOCS

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class QnnTarget:
    """Delivers ``model.onnx`` around a context binary, ``model_qnn.bin``; executed here by Qualcomm's simulator."""

    name = "qnn"
    summary = "Qualcomm NPUs (HTP), context binary for ONNX Runtime's QNN execution provider"
    extra = "qnn"
    precisions = ("int8",)
    runs_here = False
    simulated = True
    reads = frozenset[str]()
    options = (TargetOption("soc", str, "Chip that the binary is for", default="sm8650", choices=tuple(SOCS)),)
    static_because = "a context binary is compiled for sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """What the HTP's integer kernels take."""
        from convertkit.targets.qnn.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: QDQ to a context binary; ``MissingFramework`` where the execution provider is not installed."""
        if find_spec("onnxruntime_qnn") is None:
            raise MissingFramework("onnxruntime-qnn", self.extra)
        from convertkit.targets.qnn.stage import CompileContext

        if not context.options.full_integer:
            raise UsageError(
                "--target qnn needs --full-integer: what stays in float, the NPU computes in float16 and the simulator "
                "in float32"
            )
        return (CompileContext(str(context.target_options["soc"]), context.options.timeout_s),)


target = QnnTarget()
