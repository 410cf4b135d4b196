"""ExecuTorch: a ``.pte`` program for phones and boards, whose kernels are those of XNNPACK."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class ExecuTorchTarget:
    """Delivers ``model.pte``, from a source of any framework; executed here by ExecuTorch's own runtime."""

    name = "executorch"
    summary = "ExecuTorch (PyTorch on phones and boards), .pte with XNNPACK's kernels"
    extra = "executorch"
    precisions = ("float32", "int8")
    runs_here = True
    reads = frozenset[str]()
    options: tuple[TargetOption, ...] = ()
    static_because = "a .pte file plans its memory for sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """What XNNPACK's integer kernels take."""
        from convertkit.targets.executorch.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to a program; ``MissingFramework`` where ExecuTorch is not installed."""
        if find_spec("executorch") is None:
            raise MissingFramework("executorch", self.extra)
        from convertkit.targets.executorch.stage import WriteProgram

        return (WriteProgram(context.options.precision, context.options.timeout_s),)


target = ExecuTorchTarget()
