"""Models that are objects of the caller's process: saved as files in a folder that goes with the export."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path

from convertkit import plugins
from convertkit.errors import UsageError
from convertkit.stage import LiveConverter


@contextmanager
def as_source(model: object, example: object) -> Iterator[str]:
    """What ``convertkit export`` takes for ``model``: a path as it is, the file that a live object was saved as.

    Raises ``UsageError`` for what is neither, and for an example beside a path, which has inputs of its own.
    """
    if isinstance(model, str | PathLike):
        if example is not None:
            raise UsageError("example goes with a live model; for a file, input= tells what it does not hold")
        yield fspath(model)
        return
    with tempfile.TemporaryDirectory(prefix="convertkit-live-") as folder:
        for converter in plugins.converters():
            if isinstance(converter, LiveConverter):
                path = converter.save_live(model, example, Path(folder))
                if path is not None:
                    yield str(path)
                    return
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise UsageError(
            f"an object of type {kind} is not a model that convertkit takes; "
            "it takes a path, pkg.mod:callable, and live models of PyTorch, Keras, JAX and ONNX"
        )
