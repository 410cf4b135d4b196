"""IREE: a ``.vmfb`` module for CPUs, compiled ahead of time, for this machine and for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.iree.platforms import ANY_CPU, PLATFORMS, cpu_name

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class IreeTarget:
    """Delivers ``model.vmfb`` for this machine's processor, executed here, and one for each further platform."""

    name = "iree"
    summary = "IREE, .vmfb compiled ahead of time for x86 and Arm CPUs"
    engine = "iree"
    precisions = ("float32", "int8")
    runs_here = True
    reads = frozenset[str]()
    options = (
        TargetOption("cpu", cpu_name, "Processor, as LLVM calls it", default=ANY_CPU, metavar="NAME"),
        TargetOption("also", str, "A further platform; compiled only", choices=tuple(PLATFORMS), repeatable=True),
    )

    def profile(self, options: ExportOptions) -> QuantProfile:
        """What becomes integers."""
        from convertkit.targets.iree.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to modules; ``MissingEngine`` where IREE is not installed."""
        from convertkit.engines.environments import elsewhere
        from convertkit.targets.iree.stage import CompileModule

        chosen, there = context.target_options, elsewhere(self.engine)
        return (CompileModule(str(chosen["cpu"]), tuple(chosen["also"]), there, context.options.timeout_s),)


target = IreeTarget()
