"""The ``.onnx`` of the ``onnxruntime`` target → the ``.ort`` that a phone loads."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, bytes_beside, sha256_of
from convertkit.errors import ToolError, Unsupported
from convertkit.onnx.load import load_own
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.onnxruntime.stage import tolerance_of
from convertkit.targets.ort_mobile.file import write_ort
from convertkit.targets.ort_mobile.readme import readme
from convertkit.targets.ort_mobile.required import CONFIG, write_required
from convertkit.targets.ort_mobile.sorting import in_order
from convertkit.targets.ort_mobile.usability import usability

_MOST_BYTES = (1 << 31) - 1
"""What the offsets of a FlatBuffer reach."""


class WriteOrt:
    """Writes ``model.ort`` and what a reduced build of ONNX Runtime needs for it.

    The tolerance is that of the ``onnxruntime`` step: the same optimisations, without the layout of x86.
    """

    name = "ort-mobile"
    version = "1"
    accepts = frozenset({"onnxruntime"})
    produces = "ort-mobile"

    def __init__(self, precision: str) -> None:
        self._precision = precision
        self.tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        return {"precision": self._precision}

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for: the file is written, and neither sorted nor loaded."""
        with tempfile.TemporaryDirectory(prefix="convertkit-ort-") as place:
            self._write(source, Path(place) / "model.ort")

    def _write(self, source: Artifact, path: Path) -> None:
        if bytes_beside(source) > _MOST_BYTES:
            raise Unsupported("the model is too large for one .ort file", ways_out=("--target onnxruntime",))
        try:
            write_ort(source.path, path, small=self._precision == "w8")
        except ToolError as error:
            raise Unsupported(str(error), ways_out=("--target onnxruntime",)) from error

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` for a model that one file cannot hold or that ONNX Runtime does not write."""
        path = workdir / "model.ort"
        self._write(source, path)
        self.tolerance = tolerance_of(load_own(source.path))
        path.write_bytes(in_order(path.read_bytes()))
        kinds = write_required(path, workdir / CONFIG)
        verdicts = usability(source.path)
        self.diagnosis = {"usability": verdicts, "required_operators": kinds}
        (workdir / "README.md").write_text(readme(self._precision, verdicts), encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


_: type[Stage] = WriteOrt
