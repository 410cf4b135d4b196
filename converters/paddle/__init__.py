"""PaddlePaddle's models as sources: what ``paddle.jit.save`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source

_PIR = b'"magic":"pir"'
_WEIGHTS = ".pdiparams"


class PaddleConverter:
    """Reads ``NAME.json`` or ``NAME.pdmodel`` with ``NAME.pdiparams`` beside it."""

    name = "paddle"
    summary = "PaddlePaddle (.json or .pdmodel with .pdiparams)"
    engine = "paddle"
    reads = frozenset[str]()

    def sniff(self, source: str) -> str | None:
        path = Path(source)
        try:
            if path.suffix not in (".json", ".pdmodel") or not path.with_suffix(_WEIGHTS).is_file():
                return None
            with path.open("rb") as stream:
                head = stream.read(256)
        except (OSError, ValueError):
            return None
        known = head[:1] == b"\n" if path.suffix == ".pdmodel" else _PIR in head.replace(b" ", b"")
        return "paddle" if known else None

    def files_beside(self, source: str) -> Sequence[Path]:
        """The weights."""
        return (Path(source).with_suffix(_WEIGHTS),)

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        """``MissingEngine`` where PaddlePaddle is not installed."""
        from convertkit.engines.environments import elsewhere

        there = elsewhere(self.engine)
        from convertkit.converters.paddle.source import PaddleSource

        progress.status(f"importing paddle and loading {Path(source).name}")
        return PaddleSource(Path(source), options, workdir, there)


converter = PaddleConverter()
