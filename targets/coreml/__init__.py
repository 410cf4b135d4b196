"""Core ML: an ``.mlpackage`` with an ML program, for iPhone, iPad, Mac and Apple Watch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, chosen
from convertkit.targets.coreml.options import TARGETS

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Replay, Stage
    from convertkit.targets.coreml.options import Image, Sizes


def _sizes(text: str) -> Sizes:
    from convertkit.targets.coreml.options import sizes_of

    return sizes_of(text)


def _image(text: str) -> Image:
    from convertkit.targets.coreml.options import image_of

    return image_of(text)


class CoreMLTarget:
    """Delivers ``model.mlpackage``; executed here by an evaluator of MIL, on no Apple hardware."""

    name = "coreml"
    summary = "Core ML (Apple devices), model.mlpackage"
    extra = "coreml"
    precisions = ("float32", "fp16", "int8", "w8", "w4")
    runs_here = False
    simulated = True
    reads = frozenset[str]()
    options = (
        TargetOption(
            "deployment-target",
            str,
            "Oldest system that has to load the package; iOS17, with --w4 iOS18, where it is not given",
            metavar="iOS16|iOS17|iOS18",
            choices=tuple(TARGETS),
        ),
        TargetOption(
            "shapes",
            _sizes,
            "Sizes that a dynamic dimension may have",
            metavar="NAME=SIZE,SIZE|LEAST..MOST",
            repeatable=True,
        ),
        TargetOption(
            "image",
            _image,
            "Input that an app gives as an image: the model gets pixel * scale + bias",
            metavar="NAME=rgb|bgr|gray[,scale:S][,bias:B]",
            repeatable=True,
        ),
        TargetOption(
            "palette",
            str,
            "Weights as places of so many bits in a table for each, in float32 or with --fp16",
            metavar="2|4|6|8",
            choices=("2", "4", "6", "8"),
        ),
        TargetOption("state", bool, "The package keeps state between calls by itself, for makeState(); iOS 18"),
        TargetOption("labels", Path, "Text file with the name of a class in each line, for a classifier"),
    )
    static_because = "Core ML packages have fixed sizes where nothing else is asked for"

    def left_open(self, options: ExportOptions) -> dict[str, tuple[int, ...]]:
        """Dimensions that stay dynamic, with sizes that the package states."""
        return {sizes.name: sizes.proven for sizes in chosen(self, options).get("shapes", ())}

    def profile(self, options: ExportOptions) -> QuantProfile:
        """How Core ML wants the QDQ graph."""
        from convertkit.targets.coreml.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """ONNX to an ML program, with palettes before it; ``MissingFramework`` where coremltools is not installed."""
        if find_spec("coremltools") is None:
            raise MissingFramework("coremltools", self.extra)
        from convertkit.targets.coreml.options import choices
        from convertkit.targets.coreml.palettes import MakePalettes
        from convertkit.targets.coreml.stage import CompileCoreML

        given, chosen = context.options, choices(context)
        stage = CompileCoreML(chosen, given.timeout_s, calibration=context.calibration, seed=given.seed)
        return (MakePalettes(chosen.palette), stage) if chosen.palette else (stage,)

    def replay(self, artifact: Artifact, precision: str) -> Replay:
        """Of ``golden.json``, in the evaluator."""
        from convertkit.targets.coreml.replay import replay

        return replay(artifact.path)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operations of the package."""
        from convertkit.targets.coreml.inspection import operators

        return operators(artifact.path)


target = CoreMLTarget()
