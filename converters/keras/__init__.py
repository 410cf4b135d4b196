"""Keras files as sources: ``.keras`` of Keras 3, ``.h5`` of Keras 2 and 3."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.errors import SourceError, Unsupported
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions

if TYPE_CHECKING:
    from convertkit.stage import Source

HDF5 = b"\x89HDF\r\n\x1a\n"
_MEMBERS = frozenset({"config.json", "model.weights.h5"})


class KerasConverter:
    """Reads whole models; Keras on its JAX backend executes them, so no TensorFlow is needed."""

    name = "keras"
    summary = "Keras (.keras, .h5)"
    extra = "keras"
    reads = frozenset({"--model", "--trust lambda", "--trust pyfunc"})

    def sniff(self, source: str) -> str | None:
        """A zip with Keras 3's members, or any HDF5 file by its signature."""
        try:
            with Path(source).open("rb") as stream:
                start = stream.read(8)
            if start == HDF5:
                return "keras-h5"
            if start[:4] == b"PK\x03\x04":
                with zipfile.ZipFile(source) as archive:
                    return "keras" if set(archive.namelist()) >= _MEMBERS else None
        except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
            return None
        return None

    def save_live(self, model: object, example: object, folder: Path) -> Path | None:
        """A file in ``folder`` made of an object of the caller's process; None where it is not this framework's."""
        from convertkit.converters.keras.live import saved_live

        return saved_live(model, example, folder)

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        from convertkit.converters.keras.source import KerasSource

        try:
            return KerasSource(Path(source), options, workdir)
        except (SourceError, Unsupported) as error:
            if "lambda" not in options.trust or importlib.util.find_spec("tensorflow") is None:
                raise
            from convertkit.converters.keras.fallback import through_tensorflow

            return through_tensorflow(Path(source), options, workdir, error)


converter = KerasConverter()
