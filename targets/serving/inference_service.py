"""A Triton repository becomes what KServe deploys: the same repository, and the resource that asks for it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.stage import EXACT, Stage, Tolerance
from convertkit.targets.serving.naming import LONGEST
from convertkit.targets.serving.pages import kserve_page
from convertkit.targets.serving.repository import only_model


class PackageKServe:
    """Adds ``inferenceservice.yaml`` to a model repository."""

    name = "kserve"
    version = "1"
    accepts = frozenset({"triton"})
    produces = "kserve"
    tolerance: Tolerance = EXACT

    def __init__(self, storage_uri: str | None, replicas: int, gpu: bool) -> None:
        self._storage_uri, self._replicas, self._gpu = storage_uri, replicas, gpu

    @property
    def options(self) -> Mapping[str, object]:
        return {"storage_uri": self._storage_uri, "min_replicas": self._replicas, "gpu": self._gpu}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """The folder of the Triton package, with the resource and a page about it."""
        shutil.copytree(source.path.parent, workdir, dirs_exist_ok=True)
        path = workdir / source.path.name
        name = only_model(path).name
        uri = self._storage_uri or f"pvc://models/{name}"
        resource = inference_service(name, uri, self._replicas, _memory_gib(source), gpu=self._gpu)
        (workdir / "inferenceservice.yaml").write_text(resource, encoding="utf-8")
        (workdir / "README.md").write_text(kserve_page(name, uri), encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


def inference_service(name: str, storage_uri: str, replicas: int, memory_gib: int, *, gpu: bool) -> str:
    """The InferenceService for a Triton repository that lies at ``storage_uri``, with ``memory_gib`` for a server.

    Source: KServe, serving.kserve.io/v1beta1, and its cluster runtime ``kserve-tritonserver``.  The service's own name
    begins with a letter (``IsvcNameFmt``), which a model's need not.
    """
    service = name if name[0].isalpha() else f"model-{name}"[:LONGEST].rstrip("-")
    graphics = '          nvidia.com/gpu: "1"\n' if gpu else ""
    return f"""apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {json.dumps(service)}
spec:
  predictor:
    minReplicas: {replicas}
    model:
      modelFormat:
        name: triton
        version: "2"
      runtime: kserve-tritonserver
      protocolVersion: v2
      storageUri: {json.dumps(storage_uri)}
      resources:
        requests:
          cpu: "1"
          memory: {memory_gib}Gi
        limits:
          cpu: "2"
          memory: {2 * memory_gib}Gi
{graphics}"""


def _memory_gib(source: Artifact) -> int:
    """Room for the model twice, as it is loaded, and half of the first GiB for the server itself."""
    return max(1, math.ceil((2 * source.size_bytes + (1 << 29)) / (1 << 30)))


_: type[Stage] = PackageKServe
