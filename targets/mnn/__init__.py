"""MNN: a ``.mnn`` file for phones and boards, written by its own converter and executed by its runtime."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class MnnTarget:
    """Delivers ``model.mnn``.  Its weights may be float16, 8-bit or 4-bit; its arithmetic is float."""

    name = "mnn"
    summary = "MNN (phones and boards), model.mnn"
    extra = "mnn"
    precisions = ("float32", "fp16", "w8", "w4")
    lacks: Mapping[str, str] = {
        "int8": "MNN's converter does not read integer activations (QuantizeLinear), so use --w8 or --w4, or "
        "--target tflite or onnxruntime for integer kernels"
    }
    runs_here = True
    reads = frozenset[str]()
    options: tuple[TargetOption, ...] = ()

    def profile(self, options: ExportOptions) -> QuantProfile:
        """Which weights MNN stores as integers."""
        from convertkit.targets.mnn.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to MNN; ``MissingFramework`` where MNN is not installed."""
        if find_spec("MNN") is None:
            raise MissingFramework("MNN", self.extra)
        from convertkit.targets.mnn.stage import WriteMnn

        return (WriteMnn(context.options.precision, context.options.timeout_s),)


target = MnnTarget()
