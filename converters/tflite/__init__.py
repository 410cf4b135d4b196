"""TensorFlow Lite files as sources, read by our own FlatBuffer reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source

_IDENTIFIER = b"TFL3"


class TFLiteConverter:
    """Reads ``.tflite``, float and quantized; LiteRT executes it as the reference."""

    name = "tflite"
    summary = "TensorFlow Lite (.tflite)"
    extra = "tflite"
    reads = frozenset({"--signature"})

    def sniff(self, source: str) -> str | None:
        """The file identifier stands behind the first offset."""
        try:
            with Path(source).open("rb") as stream:
                return "tflite" if stream.read(8)[4:] == _IDENTIFIER else None
        except (OSError, ValueError):
            return None

    def is_quantized(self, source: str) -> bool:
        from convertkit.converters.tflite.model import read_model
        from convertkit.converters.tflite.source import has_integers

        return has_integers(read_model(Path(source)))

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.tflite.source import TFLiteSource

        return TFLiteSource(Path(source), options, workdir)


converter = TFLiteConverter()
