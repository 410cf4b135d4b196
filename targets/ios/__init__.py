"""iOS: a Swift package or a pod with the model as a resource, and a typed Swift API around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit import plugins
from convertkit.errors import UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, values
from convertkit.targets.ios.names import ModuleName
from convertkit.targets.ios.runtimes import RUNTIMES, AppleRuntime
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Replay, Stage


class IosTarget:
    """Delivers a package around the file of the ``onnxruntime``, the ``ort-mobile`` or the ``tflite`` target."""

    name = "ios"
    summary = "iOS: Swift package or pod with a typed Swift API around an ONNX Runtime or TensorFlow Lite model"
    extra = "core"
    packages = "onnxruntime"
    precisions = tflite.precisions
    runs_here = False
    reads = frozenset({"--label-file", "--normalization", "--images", "--description", "--compress"})
    options = (
        TargetOption("module", ModuleName.read, "Swift module and class", default=ModuleName("Model"), metavar="NAME"),
        TargetOption(
            "runtime", str, "What runs the model: a Swift package has onnxruntime or ort-mobile (.ort), a pod litert",
            default="onnxruntime", choices=tuple(RUNTIMES),
        ),
        TargetOption("image", str, "Input that takes a CGImage, by --images and --normalization", metavar="INPUT"),
        TargetOption("audio", str, "Input that takes PCM of 16 bits", metavar="INPUT"),
    )  # fmt: skip
    static_because = "the arrays of a typed API have one size"

    def packaged(self, options: ExportOptions) -> str:
        """By ``--ios-runtime``."""
        return self._runtime(options).target

    def check(self, options: ExportOptions) -> None:
        """Raise ``UsageError`` for an input that would be two things."""
        chosen = values(self, options)
        if chosen["image"] is not None and chosen["image"] == chosen["audio"]:
            raise UsageError(f"--ios-image and --ios-audio are both of {chosen['image']}")

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the target whose file this is wants it."""
        return plugins.target(self.packaged(options)).profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of the target that it packages."""
        from convertkit.targets.ios.stage import IosChoices, PackageIos

        chosen = context.target_options
        choices = IosChoices(chosen["module"], self._runtime(context.options), chosen["image"], chosen["audio"])
        return (PackageIos(context.options, context.calibration, choices),)

    def replay(self, artifact: Artifact, precision: str) -> Replay:
        """Of the test beside the model, in the runtime that the package is for."""
        from convertkit.targets.ios.names import RESERVED
        from convertkit.targets.ios.runner import IosRunner
        from convertkit.targets.mobile.replay import replayed

        folders = artifact.path.glob("Tests/*/Golden")
        return replayed(artifact, IosRunner(artifact), folders, precision, RESERVED)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the packaged file."""
        from convertkit.targets.ios.checks import packaged_model
        from convertkit.targets.mobile.running import operators_of

        return operators_of(packaged_model(artifact.path))

    def _runtime(self, options: ExportOptions) -> AppleRuntime:
        return RUNTIMES[values(self, options)["runtime"]]


target = IosTarget()
