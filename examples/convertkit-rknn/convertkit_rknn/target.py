"""Rockchip's NPUs: a ``.rknn`` file by RKNN-Toolkit2, verified in the simulator that comes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.engines.environments import elsewhere
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit_rknn.chips import CHIPS, CONSISTENT, LEVELS, USUAL

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class RknnTarget:
    """Delivers ``model.rknn``, and ``model.onnx``, the quantized graph that it was compiled from."""

    name = "rknn"
    summary = "Rockchip NPUs, .rknn with int8"
    engine = "rknn"
    precisions = ("int8",)
    runs_here = False
    simulated = True
    reads = frozenset[str]()
    options = (
        TargetOption("chip", str, "Chip that the file is for", default=USUAL, choices=CHIPS),
        TargetOption("level", int, "The toolkit's optimization level", default=CONSISTENT, choices=LEVELS),
    )
    static_because = "a .rknn file is compiled for sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """What the toolkit takes as a quantized model."""
        from convertkit_rknn.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: QDQ to a file for the NPU; ``MissingEngine`` where the toolkit is not installed."""
        from convertkit_rknn.files import Build
        from convertkit_rknn.stage import CompileRknn

        there = elsewhere(self.engine)
        chosen = context.target_options
        build = Build(str(chosen["chip"]), int(chosen["level"]))
        return (CompileRknn(build, there, context.options.timeout_s),)


target = RknnTarget()
