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
    """Delivers a package around what ``onnxruntime``, ``ort-mobile``, ``tflite`` or ``coreml`` makes."""

    name = "ios"
    summary = "iOS: Swift package or pod, typed Swift API around an ONNX Runtime, Core ML or TensorFlow Lite model"
    extra = "core"
    packages = "onnxruntime"
    precisions = tflite.precisions
    runs_here = False
    reads = frozenset({"--label-file", "--normalization", "--images", "--description", "--compress"})
    options = (
        TargetOption("module", ModuleName.read, "Swift module and class", default=ModuleName("Model"), metavar="NAME"),
        TargetOption(
            "runtime", str, "What runs the model; litert is a pod, the others are Swift packages, ort-mobile with .ort",
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
        """Raise ``UsageError`` for an input that would be two things, and for what Core ML's package has otherwise."""
        chosen = values(self, options)
        if chosen["image"] is not None and chosen["image"] == chosen["audio"]:
            raise UsageError(f"--ios-image and --ios-audio are both of {chosen['image']}")
        if chosen["runtime"] == "coreml":
            from convertkit.targets.ios.coreml import check_options

            check_options(options)

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
        from convertkit.targets.ios.order import packaged_names
        from convertkit.targets.ios.runner import ios_runner
        from convertkit.targets.mobile.ports import ports_of
        from convertkit.targets.mobile.replay import replayed

        folders = artifact.path.glob("Tests/*/Golden")
        ports = ports_of(artifact, *packaged_names(artifact), RESERVED)
        return replayed(artifact, ios_runner(artifact), ports, folders, precision)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the packaged file."""
        from convertkit.targets.coreml.inspection import operators
        from convertkit.targets.ios.checks import packaged_model, packaged_resource
        from convertkit.targets.mobile.running import operators_of

        resource = packaged_resource(artifact.path)
        return operators(resource) if resource.is_dir() else operators_of(packaged_model(artifact.path))

    def _runtime(self, options: ExportOptions) -> AppleRuntime:
        return RUNTIMES[values(self, options)["runtime"]]


target = IosTarget()
