"""TVM: a shared library compiled ahead of time, for this machine and for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.errors import Unsupported
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.iree.platforms import cpu_name
from convertkit.targets.tvm.platforms import PLATFORMS

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage

_PLAIN = "plain"


class TvmTarget:
    """Delivers ``model.so`` for this machine's processor, executed here, and one for each further platform."""

    name = "tvm"
    summary = "TVM, shared library compiled ahead of time for x86 and Arm CPUs"
    engine = "tvm"
    precisions = ("float32",)
    runs_here = True
    reads = frozenset[str]()
    options = (
        TargetOption(
            "cpu", cpu_name, "Processor, as LLVM calls it; plain is every one", default=_PLAIN, metavar="NAME"
        ),
        TargetOption("also", str, "A further platform; compiled only", choices=tuple(PLATFORMS), repeatable=True),
    )
    static_because = "a library is compiled for sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """There is none: TVM computes a quantized graph in float, and stores its weights as floats."""
        raise Unsupported("TVM computes a quantized graph in float, so int8 gains neither size nor time there")

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to libraries; ``MissingEngine`` where TVM is not installed."""
        from convertkit.engines.environments import elsewhere
        from convertkit.targets.tvm.stage import CompileLibrary

        chosen, there = context.target_options, elsewhere(self.engine)
        cpu = "" if chosen["cpu"] == _PLAIN else str(chosen["cpu"])
        return (CompileLibrary(cpu, tuple(chosen["also"]), there, context.options.timeout_s),)


target = TvmTarget()
