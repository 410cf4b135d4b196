"""TensorRT: the ``.onnx`` that its parser takes, from which an engine is built where it will run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, chosen

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage
    from convertkit.targets.tensorrt.rtx import Architectures
    from convertkit.targets.tensorrt.shapes import Range


def _profile(text: str) -> Range:
    from convertkit.targets.tensorrt.shapes import size_range

    return size_range(text)


def _architectures(text: str) -> Architectures:
    from convertkit.targets.tensorrt.rtx import architectures

    return architectures(text)


class TensorRTTarget:
    """Delivers ``model.onnx`` in TensorRT's explicit quantization form, with what builds and checks an engine."""

    name = "tensorrt"
    summary = "TensorRT, model.onnx in its explicit quantization form"
    extra = "core"
    precisions = ("float32", "fp16", "int8", "w8", "w4", "fp8", "bf16")
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
        TargetOption(
            "release",
            str,
            "Oldest release of TensorRT that reads the file: 8.6 has float32, float16 and int8",
            default="10",
            choices=("8.6", "10"),
        ),
        TargetOption(
            "rtx-sm",
            _architectures,
            "Compute capabilities times ten, for which an engine of TensorRT-RTX is built here; it is not executed",
            metavar="SM,SM",
        ),
    )

    def left_open(self, options: ExportOptions) -> dict[str, tuple[int, ...]]:
        """Dimensions with a profile stay dynamic; verified at the sizes of any other target."""
        return {each.name: () for each in chosen(self, options).get("profile", ())}

    def profile(self, options: ExportOptions) -> QuantProfile:
        """Symmetric integers, biases in float."""
        from convertkit.targets.tensorrt.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: the rules of the parser and of explicit quantization, held or refused, and the package.

        Raises ``UsageError`` for a precision that the release does not have, ``MissingFramework`` where an engine is
        asked for and TensorRT-RTX is not installed.
        """
        from convertkit.targets.tensorrt.older import RELEASE, check_precision
        from convertkit.targets.tensorrt.stage import DeliverExplicit

        given, options = context.target_options, context.options
        if given["rtx-sm"] is not None and find_spec("tensorrt_rtx") is None:
            raise MissingFramework("tensorrt-rtx", "tensorrt")
        older = given["release"] == RELEASE
        if older:
            check_precision(options.precision)
        deliver = DeliverExplicit(
            given["profile"],
            given["allow"],
            options.seed,
            context.calibration,
            older=older,
            rtx=given["rtx-sm"],
            timeout_s=options.timeout_s,
        )
        return (deliver,)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the file."""
        from convertkit.onnx.inspection import operators

        return operators(artifact.path)


target = TensorRTTarget()
