"""Canonical ONNX → MNN's file."""

from __future__ import annotations

import hashlib
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import ToolError, Unsupported
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.forms.rounded import ROUNDED
from convertkit.targets.mnn.forms import write_forms
from convertkit.targets.mnn.readme import readme
from convertkit.targets.mnn.runtime import SERVICE, runtime_name
from convertkit.targets.mnn.weights import left_float, stored_layers
from convertkit.workers.process import Worker

_TYPES = frozenset({"float32", "int64", "int32", "bool"})
_WAYS_OUT = ("--target onnxruntime", "--target tflite")
_IDENTITY = re.compile(rb"\$\0\0\0([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\0")
"""A FlatBuffer string of 36 characters."""


class WriteMnn:
    """Writes ``model.mnn``, in a worker process that holds MNN."""

    name = "mnn"
    version = "7"
    accepts = frozenset({"onnx"})
    produces = "mnn"

    def __init__(self, precision: str, timeout_s: float | None = None) -> None:
        self.tolerance: Tolerance = FLOAT32
        self._precision, self._timeout_s = precision, timeout_s
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        return {"precision": self._precision, "converter": runtime_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names the node that MNN does not convert, ``ToolError`` is what else its converter says."""
        for spec in (*source.inputs, *source.outputs):
            if spec.dtype not in _TYPES:
                reason = f"{spec.dtype}: MNN's runtime is given {', '.join(sorted(_TYPES))} alone"
                raise Unsupported(reason, subject=spec.name, ways_out=_WAYS_OUT)
        model, path = load_own(source.path), workdir / "model.mnn"
        layers = {name: [each.bits, each.block] for name, each in stored_layers(model).items()}
        if any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes()):
            self.tolerance = ROUNDED
        of_weights, of_integers = left_float(model), write_forms(model)  # which folds what is left
        self.tolerance = replace(self.tolerance, short_integers=bool(of_integers))
        notes = (*of_weights, *of_integers)
        self.diagnosis = {"notes": list(notes)} if notes else None
        with tempfile.TemporaryDirectory(prefix="convertkit-mnn-") as place:
            made = save_model(model, Path(place) / "model.onnx", f"{self.name} {self.version}", source.initial_state)
            with Worker(SERVICE, timeout_s=self._timeout_s) as worker:
                flags = ["--fp16"] if self._precision == "fp16" else []
                asked = {"model": str(made.path), "file": str(path), "flags": flags, "layers": layers}
                refusal = worker.call("convert", asked).value
        if refusal is not None:
            raise _refused(model, refusal)
        path.write_bytes(with_own_identity(path.read_bytes()))
        (workdir / "README.md").write_text(readme(source, self._precision), encoding="utf-8")
        return replace(made, path=path, format=self.produces, sha256=sha256_of(path))


def with_own_identity(data: bytes) -> bytes:
    """The file with an identity that its content gives, where MNN draws one at random.

    Source: MNN's schema, ``Net.mnn_uuid``.
    """
    found = _IDENTITY.search(data)
    if found is None:
        raise ToolError("MNN's file has no identity where its schema has one")
    start, end = found.span(1)
    rest = data[:start] + bytes(end - start) + data[end:]
    made = uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(rest).hexdigest())
    return data[:start] + str(made).encode() + data[end:]


def _refused(model: ir.Model, refusal: Mapping[str, Any]) -> Unsupported | ToolError:
    """Of the first node of the kind that the converter names, where it does."""
    node = next((each for each in model.graph if each.op_type == refusal["operator"]), None)
    if node is None:
        return ToolError(f"MNN does not convert the model: {refusal['reason']}")
    reason = f"MNN does not convert it: {refusal['reason']}"
    return Unsupported(reason, subject=f"{node.name} ({node.op_type})", ways_out=_WAYS_OUT)


_: type[Stage] = WriteMnn
