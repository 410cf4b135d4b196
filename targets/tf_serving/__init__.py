"""TensorFlow Serving: the graph of the ``tflite`` target as a SavedModel of plain TensorFlow operators."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.serving.naming import model_name, name_of
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class TfServingTarget:
    """Delivers a folder of models that TensorFlow Serving loads.

    The TFLite target's compiler has laid the graph out for kernels that want channels last, as TensorFlow's do.
    """

    name = "tf-serving"
    summary = "TensorFlow Serving, SavedModel of plain operators"
    extra = "tf-serving"
    packages = tflite.name
    precisions = ("float32",)
    runs_here = False
    reads = tflite.reads
    options = (TargetOption("name", model_name, "The model's name on the server; else the source's", metavar="NAME"),)

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the ``tflite`` target wants it; never asked."""
        return tflite.profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``tflite``; ``MissingFramework`` where TensorFlow is not installed."""
        if find_spec("tensorflow") is None:
            raise MissingFramework("tensorflow", self.extra)
        from convertkit.targets.tf_serving.stage import PackageSavedModel

        options = context.options
        name = context.target_options["name"] or name_of(options.source)
        return (PackageSavedModel(name, options.seed, context.calibration, options.timeout_s),)


target = TfServingTarget()
