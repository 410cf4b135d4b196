"""Run a model out of a TorchServe archive, by the handler that lies in it and the JSON that a client would send."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np
import onnxruntime as ort

from convertkit.artifact import Artifact
from convertkit.errors import FeedError, SourceError
from convertkit.stage import Feed, Outputs
from convertkit.targets.serving import requests
from convertkit.targets.serving.model_archive import HANDLER, MANIFEST


@dataclass(frozen=True, slots=True)
class Context:
    """What TorchServe gives to a handler."""

    manifest: dict[str, Any]
    system_properties: dict[str, Any] = field(default_factory=dict)


class ArchiveRunner:
    """Unpacks the only ``.mar`` of a model store, and asks its handler as the server does."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._folder: TemporaryDirectory[str] | None = None
        self._handler: Any = None
        self._context: Context | None = None

    def __enter__(self) -> Self:
        place, manifest = self._opened(self._artifact.path)
        self._context = Context(manifest, {"model_dir": str(place)})
        self._handler = _handler(place / manifest["model"]["handler"])
        self._handler.initialize(self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handler = None
        if self._folder is not None:
            self._folder.cleanup()

    def _opened(self, package: Path) -> tuple[Path, dict[str, Any]]:
        """The folder with the handler and the model, and the manifest that names both."""
        archive = only_archive(package)
        self._folder = TemporaryDirectory(prefix="convertkit-")
        place = Path(self._folder.name)
        return place, unpacked(archive, place)

    @property
    def runtime(self) -> str:
        """What executes the model here."""
        return f"ONNX Runtime {ort.__version__}"

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed, through the JSON of a request and of its answer."""
        assert self._handler is not None, "the runner is used as a context manager"
        for spec in self._artifact.inputs:
            if spec.name not in feed:
                raise FeedError(f"the feed has no array for input {spec.name}")
        given = {spec.name: spec.encode(np.asarray(feed[spec.name])) for spec in self._artifact.inputs}
        body = requests.text(requests.request(self._artifact.inputs, given))
        (answer,) = self._handler.handle([{"body": json.loads(body)}], self._context)
        found = requests.arrays(json.loads(requests.text(answer))["outputs"])
        return {spec.name: spec.decode(found[spec.name]) for spec in self._artifact.outputs}


def only_archive(store: Path) -> Path:
    """The only ``.mar`` of a model store; ``SourceError`` where there is none, or another one."""
    found = sorted(store.glob("*.mar"))
    if len(found) != 1:
        raise SourceError(f"{store} holds {len(found)} model archives; expected one")
    return found[0]


def unpacked(archive: Path, folder: Path) -> dict[str, Any]:
    """Unpack a ``.mar`` and return its manifest; ``SourceError`` where it is not one that we wrote."""
    try:
        with zipfile.ZipFile(archive) as members:
            members.extractall(folder)
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        handler = folder / manifest["model"]["handler"]
        (folder / manifest["model"]["serializedFile"]).stat()
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{archive} is not a model archive: {error}") from error
    if not handler.is_file() or handler.read_bytes() != HANDLER.read_bytes():
        raise SourceError(f"{archive} has a handler that is not ours, which is not executed")
    return dict(manifest)


class _Unkept(SourceFileLoader):
    """Keeps no bytecode beside the source, where it would be delivered with the package."""

    def set_data(self, path: str, data: object, **_: object) -> None:
        """Nothing is written."""


def _handler(file: Path) -> Any:
    name = "convertkit_torchserve_handler"
    loader = _Unkept(name, str(file))
    module = ModuleType(name)
    loader.exec_module(module)
    return module.OnnxHandler()
