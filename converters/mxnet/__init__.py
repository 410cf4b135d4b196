"""MXNet's graphs and weights as sources, read by our own reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.converters.mxnet.symbol import looks_like_a_symbol
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source

_MAGIC = (0x112).to_bytes(8, "little") + bytes(8)


class MxnetConverter:
    """Reads what ``HybridBlock.export`` and ``Module.save_checkpoint`` write."""

    name = "mxnet"
    summary = "MXNet (-symbol.json with .params)"
    extra = "core"
    reads = frozenset[str]()

    def sniff(self, source: str) -> str | None:
        path = Path(source)
        try:
            if not path.is_file():
                return None
            with path.open("rb") as stream:
                is_list = stream.read(len(_MAGIC)) == _MAGIC
        except (OSError, ValueError):
            return None
        return "mxnet" if is_list or looks_like_a_symbol(path) else None

    def files_beside(self, source: str) -> Sequence[Path]:
        """The graph and the weights."""
        from convertkit.converters.mxnet.places import files_of

        return files_of(Path(source))

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.mxnet.source import MxnetSource

        return MxnetSource(Path(source), options)


converter = MxnetConverter()
