"""LiteRT on a phone's NPU: the ``tflite`` target's file, compiled ahead of time for chips of several makers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, MissingTool, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, values
from convertkit.targets.litert_npu.chips import CHIPS, HTP, QUALCOMM
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


def _folder(text: str) -> str:
    if not Path(text).expanduser().is_dir():
        raise ValueError("there is no such folder")
    return str(Path(text).expanduser().absolute())


class LitertNpuTarget:
    """Delivers ``model_<chip>.tflite`` for each chip, and ``model.tflite`` for every other device."""

    name = "litert-npu"
    summary = "NPUs of phones by LiteRT: Qualcomm, and with the maker's kit MediaTek, Google, Intel"
    extra = "litert-npu"
    packages = tflite.name
    precisions = ("int8",)
    runs_here = False
    reads = frozenset({"--io-dtype", "--input-layout"})
    options = (
        TargetOption("soc", str, "Chip to compile for", default=("sm8650",), choices=tuple(CHIPS), repeatable=True),
        TargetOption(
            "kit",
            _folder,
            "Folder with the libraries of a chip's maker, for Linux on x86-64; Qualcomm's come with onnxruntime-qnn",
            metavar="FOLDER",
            repeatable=True,
        ),
        TargetOption("ai-pack", bool, "Deliver the files in an AI pack of Google Play, too"),
    )
    static_because = "a program for an NPU is compiled for sizes that are known"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """As the ``tflite`` target wants it, whose file this is."""
        return tflite.profile(options)

    def simulates(self, options: ExportOptions) -> bool:
        """Whether a simulator executes what is delivered: that of Qualcomm's chips is here."""
        return all(CHIPS[soc].vendor is QUALCOMM for soc in values(self, options)["soc"])

    def check(self, options: ExportOptions) -> None:
        """``UsageError`` for what does not fit together, ``MissingTool`` for a maker's chip without its kit."""
        if not options.full_integer:
            raise UsageError("--target litert-npu needs --full-integer: an NPU computes floats less exactly")
        given = values(self, options)
        unknown = [soc for soc in given["soc"] if not CHIPS[soc].vendor.played]
        if given["ai-pack"] and unknown:
            raise UsageError(f"--litert-npu-ai-pack: Google Play delivers to no device with {' or '.join(unknown)}")
        without = [soc for soc in given["soc"] if CHIPS[soc].vendor is not QUALCOMM and not given["kit"]]
        if without:
            raise MissingTool(
                f"compiling for {without[0]} takes libraries of {CHIPS[without[0]].vendor.kit}, which no package has; "
                "give the folder with those for Linux on x86-64: --litert-npu-kit FOLDER"
            )
        if self.simulates(options) and given["kit"] and not any((Path(kit) / HTP).is_file() for kit in given["kit"]):
            raise UsageError(f"--litert-npu-kit: a kit for Qualcomm's chips is a folder with {HTP}; there is none")

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """A step for each chip, behind those of ``tflite``; ``MissingFramework`` without Qualcomm's libraries.

        Chips without a simulator come first: what runs for those is ``model.tflite``, as in the step before them, which
        is compared exactly.  ``MissingTool`` where LiteRT's compiler is not here.
        """
        given = context.target_options
        socs = sorted(given["soc"], key=lambda soc: CHIPS[soc].vendor is QUALCOMM)
        if any(CHIPS[soc].vendor is QUALCOMM for soc in socs) and find_spec("onnxruntime_qnn") is None:
            raise MissingFramework("onnxruntime-qnn", self.extra)
        from convertkit.targets.litert_npu.compile import litert_folder
        from convertkit.targets.litert_npu.stage import CompileNpu

        litert_folder()
        limit = context.options.timeout_s
        return tuple(
            CompileNpu(soc, given["kit"], ai_pack=given["ai-pack"] and soc == socs[-1], timeout_s=limit) for soc in socs
        )

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The operators of the file that was compiled."""
        from convertkit.targets.litert_npu.package import compiled_from

        return tflite.operators(compiled_from(artifact))


target = LitertNpuTarget()
