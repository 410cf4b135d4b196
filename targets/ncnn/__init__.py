"""ncnn: a text of layers and a file of weights for phones and boards, written from the graph itself."""

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


class NcnnTarget:
    """Delivers ``model.param`` and ``model.bin``, executed here by ncnn's own runtime."""

    name = "ncnn"
    summary = "ncnn (phones and boards), model.param and model.bin"
    extra = "ncnn"
    precisions = ("float32", "fp16", "w8")
    lacks: Mapping[str, str] = {
        "int8": "its integer kernels quantize activations with scales of their own and no zero point, so use --w8, or "
        "--target tflite or onnxruntime for integer kernels",
        "w4": "its files have no weights of 4 bits that layers of floats read, so use --w8, or --target mnn",
    }
    runs_here = True
    reads = frozenset[str]()
    options: tuple[TargetOption, ...] = ()
    static_because = "the blobs of ncnn's layers get sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """Which weights are stored as integers."""
        from convertkit.targets.ncnn.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to the two files; ``MissingFramework`` where ncnn is not installed."""
        if find_spec("ncnn") is None:
            raise MissingFramework("ncnn", self.extra)
        from convertkit.targets.ncnn.stage import WriteNcnn

        return (WriteNcnn(context.options.precision),)


target = NcnnTarget()
