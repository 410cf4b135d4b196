"""Core ML: an ``.mlpackage`` with an ML program, for iPhone, iPad, Mac and Apple Watch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.coreml.options import TARGETS

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


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
    )
    static_because = "Core ML packages have fixed sizes where nothing else is asked for"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """How Core ML wants the QDQ graph."""
        from convertkit.targets.coreml.profile import profile

        return profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step: ONNX to an ML program; ``MissingFramework`` where coremltools is not installed."""
        if find_spec("coremltools") is None:
            raise MissingFramework("coremltools", self.extra)
        from convertkit.targets.coreml.options import choices
        from convertkit.targets.coreml.stage import CompileCoreML

        given = context.options
        stage = CompileCoreML(choices(context), given.timeout_s, calibration=context.calibration, seed=given.seed)
        return (stage,)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operations of the package."""
        from convertkit.targets.coreml.inspection import operators

        return operators(artifact.path)


target = CoreMLTarget()
