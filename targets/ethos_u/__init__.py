"""Arm Ethos-U: the ``tflite`` target's file, compiled for an NPU by Vela."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.ethos_u.devices import ACCELERATORS, MEMORY_MODES, SYSTEM_CONFIGS
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Estimate, Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class EthosUTarget:
    """Delivers ``model_vela.tflite`` and, as an array for firmware, ``model.cc``; executed here before Vela alone."""

    name = "ethos-u"
    summary = "Arm Ethos-U55, U65 and U85 (microcontrollers with an NPU), model_vela.tflite and C++"
    extra = "ethos-u"
    packages = tflite.name
    precisions = ("int8", "int16x8")
    runs_here = False
    reads = frozenset({"--io-dtype", "--input-layout"})
    options = (
        TargetOption(
            "accelerator", str, "NPU and its multiply-adds in a cycle", default="ethos-u55-128", choices=ACCELERATORS
        ),
        TargetOption(
            "system-config",
            str,
            "Clock and memories of the chip, as Vela's own file has them; Vela's default for the NPU without it",
            metavar="NAME",
            choices=SYSTEM_CONFIGS,
        ),
        TargetOption(
            "memory-mode",
            str,
            "Which memory holds what; Vela's default for the NPU without it",
            metavar="NAME",
            choices=MEMORY_MODES,
        ),
        TargetOption(
            "allow-cpu",
            str,
            "Operator, as TFLite calls it, that may stay on the CPU",
            metavar="OPERATOR",
            repeatable=True,
        ),
    )
    static_because = "Vela plans all memory for sizes that it knows"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the ``tflite`` target wants it, whose file this is."""
        return tflite.profile(options)

    def check(self, options: ExportOptions) -> None:
        """``UsageError`` for a chip that does not have the NPU."""
        from convertkit.targets.ethos_u.devices import chosen

        chosen(self, options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``tflite``; ``MissingFramework`` where Vela is not installed."""
        if find_spec("ethosu") is None:
            raise MissingFramework("ethos-u-vela", self.extra)
        from convertkit.targets.ethos_u.devices import chosen
        from convertkit.targets.ethos_u.stage import CompileVela

        options, allowed = context.options, tuple(context.target_options["allow-cpu"])
        _check_integers(options, allowed)
        return (CompileVela(chosen(self, options), allowed, options.timeout_s),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the file that Vela compiled."""
        from convertkit.targets.ethos_u.package import compiled_from

        return tflite.operators(compiled_from(artifact))

    def compiled_estimate(self, artifact: Artifact) -> Estimate:
        """Cycles, time and memory, as Vela estimated them."""
        from convertkit.targets.ethos_u.package import read_facts

        return read_facts(artifact.path.parent).estimate()


def _check_integers(options: ExportOptions, allowed: Collection[str]) -> None:
    """``UsageError`` with all the flags that are missing for a file without floats."""
    rounds = options.io_dtype == "float32" and not {"QUANTIZE", "DEQUANTIZE"} <= set(allowed)
    kind = "int16" if options.precision == "int16x8" else "int8"
    missing = (*(() if options.full_integer else ("--full-integer",)), *((f"--io-dtype {kind}",) if rounds else ()))
    if missing:
        instead = "--ethos-u-allow-cpu QUANTIZE --ethos-u-allow-cpu DEQUANTIZE"
        other = f"; with {instead} instead of --io-dtype the CPU rounds inputs and outputs" if rounds else ""
        raise UsageError(
            f"--target ethos-u needs {' and '.join(missing)}: the NPU computes integers alone, takes no floats{other}"
        )


target = EthosUTarget()
