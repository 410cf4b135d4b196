"""Android: an AAR and a Maven repository with the model, and a typed Kotlin API around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit import plugins
from convertkit.errors import UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, values
from convertkit.targets.android.names import PackageName, version
from convertkit.targets.android.runtimes import RUNTIMES, PhoneRuntime
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from convertkit.artifact import Artifact
    from convertkit.operators import Estimate, Memory, Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Replay, Stage

_OLDEST_SDK = min(each.min_sdk for each in RUNTIMES.values())


class AndroidTarget:
    """Delivers a package around the file of the ``tflite``, the ``onnxruntime`` or the ``ort-mobile`` target."""

    name = "android"
    summary = "Android: AAR, Maven repository and typed Kotlin API around a LiteRT or ONNX Runtime model"
    extra = "tflite"
    packages = tflite.name
    precisions = tflite.precisions
    runs_here = False
    devices = tflite.devices
    likely_devices = tflite.likely_devices
    reads = frozenset({"--label-file", "--normalization", "--images", "--description", "--compress"})
    options = (
        TargetOption(
            "package", PackageName.read, "Kotlin package of the API; its last word names class and files",
            default=PackageName("com.example.model"), metavar="NAME",
        ),
        TargetOption("version", version, "Version in the Maven repository", default="1.0.0", metavar="VERSION"),
        TargetOption("min-sdk", int, "Oldest API level of Android", default=_OLDEST_SDK),
        TargetOption(
            "runtime", str, "What runs the model on the phone; ort-mobile is ONNX Runtime with a .ort file",
            default="litert", choices=tuple(RUNTIMES),
        ),
        TargetOption("image", str, "Input that takes a Bitmap, by --images and --normalization", metavar="INPUT"),
        TargetOption("audio", str, "Input that takes PCM of 16 bits", metavar="INPUT"),
        TargetOption("ai-pack", bool, "Deliver the model in an AI pack of Google Play"),
    )  # fmt: skip
    static_because = "the arrays of a typed API have one size"

    def packaged(self, options: ExportOptions) -> str:
        """By ``--android-runtime``."""
        return self._runtime(options).target

    def check(self, options: ExportOptions) -> None:
        """Raise ``UsageError`` for an API level that the runtime does not have."""
        chosen = values(self, options)
        runtime = self._runtime(options)
        if chosen["min-sdk"] < runtime.min_sdk:
            raise UsageError(
                f"--android-min-sdk {chosen['min-sdk']}: {runtime.library} takes {runtime.min_sdk} or newer"
            )
        if chosen["image"] is not None and chosen["image"] == chosen["audio"]:
            raise UsageError(f"--android-image and --android-audio are both of {chosen['image']}")

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the target whose file this is wants it."""
        return plugins.target(self.packaged(options)).profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of the target that it packages."""
        from convertkit.targets.android.stage import AndroidChoices, PackageAndroid

        chosen = context.target_options
        choices = AndroidChoices(
            chosen["package"],
            chosen["version"],
            chosen["min-sdk"],
            self._runtime(context.options),
            chosen["image"],
            chosen["audio"],
            chosen["ai-pack"],
        )
        return (PackageAndroid(context.options, context.calibration, choices),)

    def replay(self, artifact: Artifact, precision: str) -> Replay:
        """Of the test beside the model, in the runtime that the package is for."""
        from convertkit.targets.android.names import RESERVED
        from convertkit.targets.android.runner import AndroidRunner
        from convertkit.targets.mobile.order import names_of
        from convertkit.targets.mobile.ports import ports_of
        from convertkit.targets.mobile.replay import replayed

        folders = artifact.path.parent.glob("project/*/src/androidTest/assets/golden")
        runner = AndroidRunner(artifact)
        ports = ports_of(artifact, *names_of(runner.model(artifact)), RESERVED)
        return replayed(artifact, runner, ports, folders, precision)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the packaged file."""
        from convertkit.targets.android.checks import packaged_model
        from convertkit.targets.mobile.running import operators_of

        return operators_of(packaged_model(artifact.path))

    def estimates(self, artifact: Artifact, devices: Sequence[str]) -> tuple[Estimate, ...]:
        """What one call of the packaged TFLite file takes on each device, by its cost table."""
        from convertkit.targets.android.checks import packaged_model
        from convertkit.targets.mobile.running import estimates_of

        return estimates_of(packaged_model(artifact.path), devices)

    def memory(self, artifact: Artifact) -> Memory | None:
        """What one instance of the packaged TFLite file holds while it is called."""
        from convertkit.targets.android.checks import packaged_model
        from convertkit.targets.mobile.running import memory_of

        return memory_of(packaged_model(artifact.path))

    def _runtime(self, options: ExportOptions) -> PhoneRuntime:
        return RUNTIMES[values(self, options)["runtime"]]


target = AndroidTarget()
