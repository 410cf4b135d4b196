"""A ``.tflite`` file becomes a portable artifact of StableHLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.stablehlo.readme import readme
from convertkit.targets.tf_serving.file import Graph, read
from convertkit.targets.tf_serving.foretold import foretell
from convertkit.targets.tf_serving.stage import ENVIRONMENT
from convertkit.workers.process import Worker

SERVICE = "convertkit.targets.stablehlo.lowering:LoweringService"


class WriteStableHlo:
    """Writes ``model.mlirbc``, in a worker process that holds TensorFlow."""

    name = "stablehlo"
    version = "2"
    accepts = frozenset({"tflite"})
    produces = "stablehlo"
    tolerance: Tolerance = FLOAT32

    def __init__(self, precision: str, timeout_s: float | None) -> None:
        self._precision, self._timeout_s = precision, timeout_s
        self.options: Mapping[str, object] = {"precision": precision}
        self.diagnosis: Mapping[str, object] | None = None

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for by TFLite's operators; what XLA says is known when it is run."""
        graphs = read(source.path.read_bytes())
        foretell(graphs)
        _refuse_open_sizes(graphs)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Lower ``source``; ``Unsupported`` for operators that TensorFlow's plain ones lack, or XLA."""
        self.foretell(source)
        path = workdir / "model.mlirbc"
        with Worker(SERVICE, timeout_s=self._timeout_s, env=ENVIRONMENT, framework="tensorflow") as worker:
            asked = {"model": str(source.path), "artifact": str(path), "precision": self._precision}
            told = worker.call("lower", asked).value
        self.diagnosis = {"stablehlo": told["stablehlo"], "operators": told["operators"]}
        (workdir / "README.md").write_text(readme(source, str(told["stablehlo"]), self._precision), encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


def _refuse_open_sizes(graphs: Sequence[Graph]) -> None:
    """``Unsupported`` for a size that the data decide: XLA would give the largest that there can be."""
    for graph in graphs:
        for index in (place for operator in graph.operators for place in operator.outputs):
            tensor = graph.tensors[index]
            if any(size < 0 for size in tensor.shape):
                raise Unsupported(
                    "its size depends on the data, and a StableHLO artifact has fixed sizes",
                    subject=tensor.name,
                    ways_out=("--target onnxruntime", "--target tflite"),
                )


_: type[Stage] = WriteStableHlo
