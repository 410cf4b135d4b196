"""TensorFlow Lite Micro: the ``tflite`` target's file as C++ for firmware, with operators, arena size and a test."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, UsageError
from convertkit.processing.words import parse_postprocess
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


SKELETONS = ("cmake", "platformio", "zephyr")
"""Values of ``--tflite-micro-skeleton``."""
PLANS = ("greedy", "offline")
"""Values of ``--tflite-micro-plan``: the runtime itself, or places that the file lays down."""


def _bytes(text: str) -> int:
    size = int(text) if text.isdecimal() else 0
    if not 0 < size < 1 << 31:
        raise ValueError("expected a number of bytes, as in 65536")
    return size


class TfliteMicroTarget:
    """Delivers a C++ package around ``model.tflite``, which is the file that the ``tflite`` target makes."""

    name = "tflite-micro"
    summary = "TensorFlow Lite Micro (microcontrollers), C++ package around model.tflite"
    extra = "tflite-micro"
    packages = tflite.name
    precisions = ("float32", "int8", "int16x8")
    runs_here = False
    reads = tflite.reads
    options = (
        TargetOption("arena", _bytes, "Most memory that the tensor arena may take", metavar="BYTES"),
        TargetOption("plan", str, "Who places values in the arena", default="greedy", choices=PLANS),
        TargetOption("skeleton", str, "What builds the test", default="cmake", choices=SKELETONS),
    )
    static_because = "TensorFlow Lite Micro allocates all memory before the first call"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the ``tflite`` target wants it, whose file this is."""
        return tflite.profile(options)

    def check(self, options: ExportOptions) -> None:
        """``UsageError`` for what TensorFlow Lite Micro has no operators for, whatever the model."""
        after = None if options.postprocess is None else parse_postprocess(options.postprocess)
        if after is not None and (after.choice is not None or after.suppression is not None):
            raise UsageError(
                "--postprocess: TensorFlow Lite Micro has no TOPK_V2 and no NON_MAX_SUPPRESSION_V4, and its ARG_MAX no "
                "int64: softmax alone goes"
            )

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``tflite``; ``MissingFramework`` where TensorFlow Lite Micro is not installed."""
        if find_spec("tflite_micro") is None:
            raise MissingFramework("tflite-micro", self.extra)
        from convertkit.targets.tflite_micro.stage import PackageMicro

        chosen = context.target_options
        return (
            PackageMicro(
                context.options.seed, context.calibration, chosen["arena"], chosen["skeleton"], chosen["plan"]
            ),
        )

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the packaged file."""
        return tflite.operators(artifact)


target = TfliteMicroTarget()
