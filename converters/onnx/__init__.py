"""ONNX files as sources: made canonical, executed by ONNX Runtime as the reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.converters.onnx.sniff import is_onnx, may_name_files
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source


class OnnxConverter:
    """Reads ``.onnx`` of any opset that can be brought to a supported one exactly."""

    name = "onnx"
    summary = "ONNX (.onnx)"
    extra = "core"
    reads = frozenset[str]()

    def sniff(self, source: str) -> str | None:
        return "onnx" if is_onnx(Path(source)) else None

    def files_beside(self, source: str) -> tuple[Path, ...]:
        """External weights."""
        if not may_name_files(Path(source)):
            return ()
        from convertkit.onnx.load import external_files

        return external_files(Path(source))

    def is_quantized(self, source: str) -> bool:
        from convertkit.converters.onnx.sniff import quantizes

        return quantizes(Path(source))

    def save_live(self, model: object, example: object, folder: Path) -> Path | None:
        """An ``onnx.ModelProto``, an onnx_ir model or what ``torch.onnx.export`` returns, as a file; else None."""
        from convertkit.converters.onnx.live import saved_live

        return saved_live(model, folder)

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.onnx.source import OnnxSource

        return OnnxSource(Path(source), options)


converter = OnnxConverter()
