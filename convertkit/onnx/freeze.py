"""``--static NAME=SIZE``: named dimensions of canonical ONNX get fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from convertkit.artifact import Artifact
from convertkit.stage import FLOAT32, Tolerance


class FreezeStage:
    """Canonical ONNX with dynamic dimensions → the same with those sizes."""

    name = "static-dims"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)

    @property
    def options(self) -> Mapping[str, object]:
        return {"sizes": self._sizes}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        from convertkit.onnx.canonical import canonicalize, freeze_dims_left
        from convertkit.onnx.load import load_model
        from convertkit.onnx.save import save_model

        model = load_model(source.path)
        freeze_dims_left(model, self._sizes)
        model = canonicalize(model)
        state = None if source.initial_state is None else self._state(source, workdir / source.initial_state.name)
        return save_model(model, workdir / "static.onnx", f"{self.name} {self.version}", state)

    def _state(self, source: Artifact, path: Path) -> Path:
        """The initial values at the sizes that are fixed now."""
        from convertkit.state import initial_state, save_arrays, started

        shapes = {spec.name: spec.source_shape for spec in source.inputs}
        save_arrays(path, started(initial_state(source), shapes, self._sizes))
        return path
