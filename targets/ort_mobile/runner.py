"""Run a ``.ort`` file: the session that ONNX Runtime opens of it, with nothing left to optimise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.runner import OnnxRunner

if TYPE_CHECKING:
    from convertkit.probing import Probe


class OrtRunner(OnnxRunner):
    """Executes the file that an app gets."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact, optimised=True)

    def probe(self) -> Probe:
        """``Unsupported``: the values inside of a ``.ort`` file cannot be read."""
        raise Unsupported("a .ort file does not tell the values inside of it", ways_out=("--target onnxruntime",))
