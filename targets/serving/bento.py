"""An ``.onnx`` becomes a service of BentoML, with the handler that TorchServe's archive has, too."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import SourceError
from convertkit.onnx.runner import optimised_runner
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.serving import requests
from convertkit.targets.serving.archive import ArchiveRunner
from convertkit.targets.serving.containers import bentoml_containerfile
from convertkit.targets.serving.datatypes import protocol_type
from convertkit.targets.serving.golden import Call, put_model, write_golden
from convertkit.targets.serving.model_archive import HANDLER
from convertkit.targets.serving.pages import bentoml_page

SERVICE = "service"
_HANDLER = "onnx_model.py"
_BENTOFILE = """service: "service:Model"
include: ["*.py", "model.onnx*"]
python:
  packages: [numpy, onnxruntime]
"""


class PackageBento:
    """Writes ``service/``, which ``bentoml serve`` runs and ``bentoml build`` takes, and a golden request."""

    name = "bentoml"
    version = "1"
    accepts = frozenset({"onnxruntime"})
    produces = "bentoml"

    def __init__(self, name: str, seed: int, calibration: FeedSource | None) -> None:
        self._name, self._seed, self._calibration = name, seed, calibration
        self.tolerance: Tolerance = FLOAT32

    @property
    def options(self) -> Mapping[str, object]:
        return {"name": self._name, "seed": self._seed}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``; ``Unsupported`` for element types that the protocol has no JSON for."""
        for spec in (*source.inputs, *source.outputs):
            protocol_type(spec)
        with optimised_runner(source) as runner:
            feed, _ = requests.samples(runner, source, self._calibration, self._seed)
            outputs = runner.run(feed)
        path = workdir / SERVICE
        put_model(source.path, path)
        shutil.copyfile(HANDLER, path / _HANDLER)
        write_golden(Call.of(source, self._name, feed, outputs), workdir / "golden")
        texts = {
            path / "service.py": _service(self._name),
            path / "bentofile.yaml": _BENTOFILE,
            workdir / "Containerfile": bentoml_containerfile(),
            workdir / "README.md": bentoml_page(self._name),
        }
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


class BentoRunner(ArchiveRunner):
    """Asks the handler in the folder of a service, as the service does."""

    def _opened(self, package: Path) -> tuple[Path, dict[str, Any]]:
        handler = package / _HANDLER
        if not handler.is_file() or handler.read_bytes() != HANDLER.read_bytes():
            raise SourceError(f"{package} has a handler that is not ours, which is not executed")
        return package, {"model": {"modelName": "model", "serializedFile": "model.onnx", "handler": _HANDLER}}


def _service(name: str) -> str:
    """Source of the form: BentoML 1.4, "Create online API services"."""
    return f'''"""Requests and answers are the JSON of the Open Inference Protocol, version 2."""

from pathlib import Path
from types import SimpleNamespace

import bentoml
from onnx_model import OnnxHandler

MODEL = {{"modelName": "{name}", "serializedFile": "model.onnx"}}


@bentoml.service(name="{name}")
class Model:
    """One copy of the model in each worker."""

    def __init__(self) -> None:
        folder = {{"model_dir": str(Path(__file__).parent)}}
        self.handler = OnnxHandler()
        self.handler.initialize(SimpleNamespace(manifest={{"model": MODEL}}, system_properties=folder))

    @bentoml.api(route="/v2/models/{name}/infer")
    def infer(self, inputs: list[dict]) -> dict:
        """Answer one request."""
        (answer,) = self.handler.handle([{{"body": {{"inputs": inputs}}}}], None)
        return answer
'''


_: type[Stage] = PackageBento
