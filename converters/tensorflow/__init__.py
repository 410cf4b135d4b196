"""TensorFlow SavedModels and frozen graphs as sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.converters.tensorflow.sniff import is_graph_def, saved_model_folder
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source


class TensorFlowConverter:
    """Reads SavedModel folders of TensorFlow 1 and 2 and frozen GraphDefs; TensorFlow runs in a worker."""

    name = "tensorflow"
    summary = "TensorFlow (SavedModel folder, frozen .pb)"
    extra = "tensorflow"
    reads = frozenset({"--signature", "--trust pyfunc"})

    def sniff(self, source: str) -> str | None:
        """A folder with ``saved_model.pb`` (or that file), or a file of NodeDefs."""
        path = Path(source)
        if saved_model_folder(path) is not None:
            return "savedmodel"
        return "graphdef" if is_graph_def(path) else None

    def files_beside(self, source: str) -> tuple[Path, ...]:
        """The whole folder, where only its ``saved_model.pb`` is named."""
        folder = saved_model_folder(Path(source))
        return () if folder is None or folder == Path(source) else (folder,)

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.tensorflow.source import open_graph_def, open_saved_model

        folder = saved_model_folder(Path(source))
        if folder is not None:
            return open_saved_model(folder, options, workdir)
        return open_graph_def(Path(source), options)


converter = TensorFlowConverter()
