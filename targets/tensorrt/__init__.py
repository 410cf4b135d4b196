"""TensorRT: the ``.onnx`` that its parser takes, from which an engine is built where it will run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage
    from convertkit.targets.tensorrt.shapes import Range


def _profile(text: str) -> Range:
    from convertkit.targets.tensorrt.shapes import size_range

    return size_range(text)


class TensorRTTarget:
    """Delivers ``model.onnx`` in TensorRT's explicit quantization form, with what builds and checks an engine."""

    name = "tensorrt"
    summary = "TensorRT, model.onnx in its explicit quantization form"
    extra = "core"
    precisions = ("float32", "fp16", "int8", "w8", "w4")
    runs_here = False
    reads = frozenset[str]()
    options = (
        TargetOption(
            "profile",
            _profile,
            "Sizes of a dynamic dimension that an engine is built for",
            metavar="NAME=MIN,OPT,MAX",
            repeatable=True,
        ),
        TargetOption(
            "allow",
            str,
            "Operator to deliver although TensorRT's parser does not take it",
            metavar="OPERATOR",
            repeatable=True,
        ),
    )

    def profile(self, options: ExportOptions) -> QuantProfile:
        """Symmetric integers, biases in float."""
        from convertkit.targets.tensorrt.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: the rules of the parser and of explicit quantization, held or refused, and the package."""
        from convertkit.targets.tensorrt.stage import DeliverExplicit

        chosen = context.target_options
        return (DeliverExplicit(chosen["profile"], chosen["allow"], context.options.seed, context.calibration),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the file."""
        from convertkit.onnx.inspection import operators

        return operators(artifact.path)


target = TensorRTTarget()
