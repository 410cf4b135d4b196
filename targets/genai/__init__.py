"""ONNX Runtime GenAI: a decoder with its cache in place, its configuration and its tokenizer, in one folder."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.onnxruntime import target as onnxruntime

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


class GenaiTarget:
    """Delivers ``model.onnx``, ``genai_config.json`` and the tokenizer's files, which GenAI executes here."""

    name = "genai"
    summary = "ONNX Runtime GenAI, a folder that generates text (decoders with a cache)"
    extra = "genai"
    precisions = ("float32", "w4")
    runs_here = True
    reads = frozenset[str]()
    options = (
        TargetOption(
            "activations",
            str,
            "What products with 4-bit weights multiply: float32, or int8, which is faster and rounds",
            default="float32",
            choices=("float32", "int8"),
        ),
    )

    def takes(self, source: str) -> bool:
        """A folder with a configuration: the tokenizer and the ids of tokens come from there."""
        return (Path(source) / "config.json").is_file()

    def check(self, options: ExportOptions) -> None:
        """``UsageError`` for any other source."""
        if not self.takes(options.source):
            raise UsageError(
                f"--target genai takes a decoder's folder with config.json, weights and tokenizer, not {options.source}"
            )

    def profile(self, options: ExportOptions) -> QuantProfile:
        """Weights alone, as the ``onnxruntime`` target stores them."""
        return onnxruntime.profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step; ``MissingFramework`` where GenAI is not installed."""
        if find_spec("onnxruntime_genai") is None:
            raise MissingFramework("onnxruntime-genai", self.extra)
        from convertkit.targets.genai.stage import WriteGenai

        activations = str(context.target_options["activations"])
        return (WriteGenai(Path(context.options.source), activations, context.options.seed),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the file."""
        return onnxruntime.operators(artifact)


target = GenaiTarget()
