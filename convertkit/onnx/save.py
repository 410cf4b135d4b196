"""Write ONNX models with deterministic bytes."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.onnx.specs import interface

EXTERNAL_ABOVE_BYTES = 1_500_000_000
"""Protobuf ends at 2 GiB; larger weights go to ``<name>.data`` beside the model."""


def save_model(model: ir.Model, path: Path, made_by: str, initial_state: Path | None = None) -> Artifact:
    """Write ``model`` to ``path`` and return it as an artifact of format ``onnx``."""
    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if weights > EXTERNAL_ABOVE_BYTES:
        ir.save(model, path, external_data=path.name + ".data")
    else:
        ir.external_data.load_to_model(model)
        path.write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))
    inputs, outputs = interface(model)
    return Artifact(path, "onnx", inputs, outputs, sha256_of(path), made_by, initial_state)
