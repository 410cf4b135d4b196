"""StableHLO modules as sources: MLIR text, MLIR bytecode and portable artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.converters.stablehlo.sniff import is_stablehlo
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source


class StableHloConverter:
    """Reads ``.mlir`` text and bytecode of any producer; jaxlib parses it in a worker."""

    name = "stablehlo"
    summary = "StableHLO (.mlir text, .mlirbc bytecode)"
    extra = "jax"
    reads = frozenset[str]()

    def sniff(self, source: str) -> str | None:
        """Bytecode by its magic number, text by the operators of the dialect."""
        return "stablehlo" if is_stablehlo(Path(source)) else None

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.jax.source import JaxSource

        return JaxSource(source, "stablehlo", options, workdir)


converter = StableHloConverter()
