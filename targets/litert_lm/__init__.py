"""LiteRT-LM: a decoder with its cache in place, its tokenizer and its metadata, in one ``.litertlm`` file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.errors import MissingFramework, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption
from convertkit.targets.tflite import target as tflite

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage

_FRAMEWORKS = {
    "ai_edge_litert": "ai-edge-litert",
    "litert_lm": "litert-lm-api",
    "litert_lm_builder": "litert-lm-builder",
}


def count(text: str) -> int:
    """A number of tokens; ``ValueError`` for none and for what is not a number."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 24:
        raise ValueError("a number of tokens, at least 1")
    return int(text)


class LiteRtLmTarget:
    """Delivers ``model.litertlm``, from which LiteRT-LM generates here before it counts as made."""

    name = "litert-lm"
    summary = "LiteRT-LM, .litertlm that generates text on phones (decoders with a cache)"
    extra = "litert-lm"
    precisions = ("float32", "fp16", "w8", "w4")
    runs_here = True
    reads = frozenset[str]()
    options = (
        TargetOption("context", count, "Tokens of prompt and answer that the cache has room for", 2048, metavar="N"),
        TargetOption(
            "prefill",
            count,
            "Tokens of a prompt that one call takes; a signature each",
            default=(32, 256),
            metavar="N",
            repeatable=True,
        ),
    )

    def takes(self, source: str) -> bool:
        """A folder with a configuration: the tokenizer and the ids of tokens come from there."""
        return (Path(source) / "config.json").is_file()

    def check(self, options: ExportOptions) -> None:
        """``UsageError`` for any other source."""
        if not self.takes(options.source):
            raise UsageError(
                f"--target {self.name} takes a decoder's folder with config.json, weights and tokenizer, "
                f"not {options.source}"
            )

    def profile(self, options: ExportOptions) -> QuantProfile:
        """Weights alone, as the ``tflite`` target stores them."""
        return tflite.profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step; ``MissingFramework`` where LiteRT-LM is not installed."""
        for module, package in _FRAMEWORKS.items():
            if find_spec(module) is None:
                raise MissingFramework(package, self.extra)
        from convertkit.targets.litert_lm.stage import WriteLiteRtLm

        chosen = context.target_options
        return (WriteLiteRtLm(context.options, int(chosen["context"]), tuple(chosen["prefill"])),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """Those of all signatures."""
        from convertkit.targets.litert_lm.package import MODEL, section_of
        from convertkit.targets.tflite.inspection import operators_of

        return operators_of(section_of(artifact.path, MODEL))


target = LiteRtLmTarget()
