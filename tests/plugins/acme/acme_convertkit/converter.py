"""acme text → ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from acme_convertkit import layers
from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Source, Stage


class AcmeConverter:
    """Recognises the first line of the format."""

    name = "acme"
    summary = "acme layers (text)"

    def sniff(self, source: str) -> str | None:
        try:
            with Path(source).open(encoding="utf-8") as stream:
                return "acme" if stream.readline(80).strip() == layers.MAGIC else None
        except (OSError, UnicodeDecodeError):
            return None

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        return AcmeSource(Path(source))


class AcmeSource:
    """An opened file; it is its own runner."""

    notes = ("acme files have no names: input and output are called x and y",)

    def __init__(self, path: Path) -> None:
        self.layers = layers.read(path)
        dense = [layer.weight for layer in self.layers if isinstance(layer, layers.Dense)]
        inputs = (TensorSpec("x", ("N", dense[0].shape[0]), "float32"),)
        outputs = (TensorSpec("y", ("N", dense[-1].shape[1]), "float32"),)
        self.artifact = Artifact(path, "acme", inputs, outputs, sha256_of(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def runner(self) -> Runner:
        return self

    def run(self, feed: Feed) -> Outputs:
        return {"y": layers.compute(self.layers, feed["x"])}

    def stage(self) -> Stage:
        return AcmeToOnnx(self)


class AcmeToOnnx:
    """Writes MatMul and Relu nodes."""

    name = "acme-to-onnx"
    version = "1"
    accepts = frozenset({"acme"})
    produces = "onnx"
    tolerance = FLOAT32
    options: Mapping[str, object] = {}

    def __init__(self, source: AcmeSource) -> None:
        self._source = source

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        nodes, stored, value = [], [], "x"
        for index, layer in enumerate(self._source.layers):
            made = "y" if index == len(self._source.layers) - 1 else f"h{index}"
            if isinstance(layer, layers.Dense):
                stored.append(numpy_helper.from_array(layer.weight, f"w{index}"))
                nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [made]))
            else:
                nodes.append(helper.make_node("Relu", [value], [made]))
            value = made
        ends = [
            [helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, spec.shape)]
            for spec in (*source.inputs, *source.outputs)
        ]
        graph = helper.make_graph(nodes, "acme", *ends, stored)
        proto: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        return save_model(canonicalize(ir.from_proto(proto)), workdir / "acme.onnx", f"{self.name} {self.version}")


converter = AcmeConverter()
