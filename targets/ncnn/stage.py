"""Canonical ONNX → ncnn's two files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.onnx.load import load_own
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.forms.rounded import ROUNDED
from convertkit.targets.ncnn.compile import Compiled, compile_model
from convertkit.targets.ncnn.layers import stored, written
from convertkit.targets.ncnn.readme import readme
from convertkit.targets.ncnn.runner import PORTS


class WriteNcnn:
    """Writes ``model.param``, ``model.bin`` and what tells their inputs and outputs."""

    name = "ncnn"
    version = "3"
    accepts = frozenset({"onnx"})
    produces = "ncnn"

    def __init__(self, precision: str) -> None:
        self.tolerance: Tolerance = FLOAT32
        self._precision = precision
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        return {"precision": self._precision}

    def foretell(self, source: Artifact) -> None:
        """Raise ``Unsupported`` for the first node that has no layers."""
        compile_model(load_own(source.path))

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` names the first node that has no layers."""
        model = load_own(source.path)
        if any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes()):
            self.tolerance = ROUNDED
        compiled = compile_model(model)
        path = workdir / "model.param"
        path.write_text(written(compiled.layers), encoding="utf-8")
        weights = stored(compiled.layers, compact=self._precision != "float32")
        path.with_suffix(".bin").write_bytes(weights)
        path.with_name(PORTS).write_text(_ports(compiled), encoding="utf-8")
        kernels = dict(sorted(Counter(layer.kind for layer in compiled.layers).items()))
        self.diagnosis = {"kernels": kernels, "notes": [_counted(each.blob) for each in compiled.inputs if each.whole]}
        text = readme(source, compiled, self._precision)
        (workdir / "README.md").write_text(text, encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


def _counted(name: str) -> str:
    return f"input {name}: give places from 0 on; ncnn does not count negative ones from the end, and takes 0 for them"


def _ports(compiled: Compiled) -> str:
    told = {
        "inputs": [asdict(each) for each in compiled.inputs],
        "outputs": [asdict(each) for each in compiled.outputs],
    }
    return json.dumps(told, indent=1) + "\n"


_: type[Stage] = WriteNcnn
