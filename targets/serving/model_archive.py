"""An ``.onnx`` becomes a model archive (``.mar``) for TorchServe, with a handler that needs no PyTorch of its own."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_own
from convertkit.onnx.runner import optimised_runner
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.serving import requests
from convertkit.targets.serving.containers import (
    TORCHSERVE_ONNXRUNTIME,
    TORCHSERVE_OPSET,
    torchserve_containerfile,
)
from convertkit.targets.serving.datatypes import protocol_type
from convertkit.targets.serving.golden import Call, write_golden
from convertkit.targets.serving.pages import torchserve_page

HANDLER = Path(__file__).with_name("torchserve_handler.py")
MANIFEST = "MAR-INF/MANIFEST.json"
STORE = "model-store"
_MODEL = "model.onnx"
_ARCHIVER = "0.12.0"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_REQUIREMENTS = "numpy\nonnxruntime\n"


class PackageTorchServe:
    """Writes ``model-store/<name>.mar``, the server's configuration and a golden request."""

    name = "torchserve"
    version = "1"
    accepts = frozenset({"onnxruntime"})
    produces = "torchserve"

    def __init__(self, name: str, seed: int, calibration: FeedSource | None) -> None:
        self._name, self._seed, self._calibration = name, seed, calibration
        self.tolerance: Tolerance = FLOAT32

    @property
    def options(self) -> Mapping[str, object]:
        return {"name": self._name, "seed": self._seed}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``; ``Unsupported`` for types without JSON and for opsets that the image does not load."""
        _refuse_newer(load_own(source.path).graph.opset_imports.get("", 1))
        for spec in (*source.inputs, *source.outputs):
            protocol_type(spec)
        with optimised_runner(source) as runner:
            feed, _ = requests.samples(runner, source, self._calibration, self._seed)
            outputs = runner.run(feed)
        path = workdir / STORE
        path.mkdir()
        write_archive(source.path, self._name, path / f"{self._name}.mar")
        write_golden(Call.of(source, self._name, feed, outputs), workdir / "golden")
        texts = {
            "config.properties": _properties(self._name),
            "Containerfile": torchserve_containerfile(),
            "README.md": torchserve_page(self._name),
        }
        for name, text in texts.items():
            (workdir / name).write_text(text, encoding="utf-8")
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)


def _refuse_newer(opset: int) -> None:
    if opset > TORCHSERVE_OPSET:
        raise Unsupported(
            f"opset {opset}: TorchServe's image has Python 3.9, whose last ONNX Runtime, {TORCHSERVE_ONNXRUNTIME}, "
            f"loads opsets up to {TORCHSERVE_OPSET}",
            ways_out=(f"--opset {TORCHSERVE_OPSET}", "--package triton"),
        )


def write_archive(model: Path, name: str, archive: Path) -> None:
    """Write the ``.mar``: a zip whose bytes depend on the model and its name alone.

    Source of the layout: torch-model-archiver 0.12.
    """
    with zipfile.ZipFile(archive, "w") as out:
        for member, content in _members(model, name):
            entry = zipfile.ZipInfo(member, _EPOCH)
            with out.open(entry, "w", force_zip64=isinstance(content, Path)) as stream:
                if isinstance(content, str):
                    stream.write(content.encode())
                else:
                    with content.open("rb") as read:
                        while chunk := read.read(1 << 20):
                            stream.write(chunk)


def _members(model: Path, name: str) -> Iterator[tuple[str, Path | str]]:
    yield _MODEL, model
    weights = model.with_name(model.name + ".data")
    if weights.exists():
        yield weights.name, weights
    yield HANDLER.name, HANDLER
    yield "requirements.txt", _REQUIREMENTS
    yield MANIFEST, _manifest(name)


def _manifest(name: str) -> str:
    model = {
        "modelName": name,
        "serializedFile": _MODEL,
        "handler": HANDLER.name,
        "modelVersion": "1.0",
        "requirementsFile": "requirements.txt",
    }
    told = {"createdOn": "01/01/1980 00:00:00", "runtime": "python", "model": model, "archiverVersion": _ARCHIVER}
    return json.dumps(told, indent=2) + "\n"


def _properties(name: str) -> str:
    return (
        "inference_address=http://0.0.0.0:8080\nmanagement_address=http://127.0.0.1:8081\n"
        f"metrics_address=http://127.0.0.1:8082\nmodel_store={STORE}\nload_models={name}.mar\n"
        "install_py_dep_per_model=true\n"
    )


_: type[Stage] = PackageTorchServe
