"""A ``.tflite`` file becomes a SavedModel for TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit import plugins
from convertkit.artifact import Artifact, sha256_of
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.serving import requests
from convertkit.targets.tf_serving.file import read
from convertkit.targets.tf_serving.foretold import foretell
from convertkit.targets.tf_serving.package import MODELS, containerfile, page, rest_request, rest_response
from convertkit.workers.process import Worker

SERVICE = "convertkit.targets.tf_serving.service:Service"
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
VERSION = "1"


class PackageSavedModel:
    """Writes ``models/<name>/1`` with warm-up requests, a golden request and a container file."""

    name = "tf-serving"
    version = "1"
    accepts = frozenset({"tflite"})
    produces = "tf-serving"
    tolerance: Tolerance = FLOAT32

    def __init__(self, name: str, seed: int, calibration: FeedSource | None, timeout_s: float | None) -> None:
        self._name, self._seed, self._calibration, self._timeout_s = name, seed, calibration, timeout_s

    @property
    def options(self) -> Mapping[str, object]:
        return {"name": self._name, "seed": self._seed}

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for, found by TFLite's operators and without TensorFlow."""
        foretell(read(source.path.read_bytes()))

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``; ``Unsupported`` for operators and tensors that TensorFlow's plain operators lack."""
        path = workdir / MODELS
        folder = path / self._name / VERSION
        folder.parent.mkdir(parents=True)
        ins, outs = [spec.name for spec in source.inputs], [spec.name for spec in source.outputs]
        with plugins.runner(source) as runner:
            feed, _ = requests.samples(runner, source, self._calibration, self._seed)
        given = {spec.name: spec.encode(np.asarray(feed[spec.name])) for spec in source.inputs}
        with Worker(SERVICE, timeout_s=self._timeout_s, env=ENVIRONMENT, framework="tensorflow") as worker:
            worker.call("write", {"model": str(source.path), "folder": str(folder), "inputs": ins, "outputs": outs})
            worker.call("warm_up", {"folder": str(folder), "name": self._name}, given)
            worker.call("load", {"folder": str(folder)})
            answered = worker.call("run", {}, given).arrays
        golden = workdir / "golden"
        golden.mkdir()
        (golden / "request.json").write_text(rest_request(given), encoding="utf-8")
        (golden / "response.json").write_text(rest_response({name: answered[name] for name in outs}), encoding="utf-8")
        (workdir / "Containerfile").write_text(containerfile(self._name), encoding="utf-8")
        (workdir / "README.md").write_text(page(self._name), encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


_: type[Stage] = PackageSavedModel
