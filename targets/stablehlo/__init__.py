"""StableHLO: a portable artifact of what the ``tflite`` target's graph computes, executed by XLA."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class StableHloTarget:
    """Delivers ``model.mlirbc``.  TensorFlow's bridge to XLA writes it from the graph that ``tf-serving`` gets, too."""

    name = "stablehlo"
    summary = "StableHLO, portable artifact for XLA, JAX and IREE"
    extra = "stablehlo"
    packages = tflite.name
    precisions = ("float32",)
    runs_here = True
    reads = tflite.reads
    options = (
        TargetOption(
            "precision",
            str,
            "Precision of convolutions and matrix products of float32 on GPUs and TPUs",
            default="highest",
            choices=("highest", "default"),
        ),
    )
    static_because = "the artifact is lowered for sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the ``tflite`` target wants it; never asked."""
        return tflite.profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``tflite``; ``MissingFramework`` where TensorFlow or jaxlib is not installed."""
        for framework in ("tensorflow", "jaxlib"):
            if find_spec(framework) is None:
                raise MissingFramework(framework, self.extra)
        from convertkit.targets.stablehlo.stage import WriteStableHlo

        return (WriteStableHlo(str(context.target_options["precision"]), context.options.timeout_s),)


target = StableHloTarget()
