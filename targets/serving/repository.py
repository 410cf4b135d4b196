"""Run a model out of a Triton repository, as its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnxruntime as ort

from convertkit.artifact import Array, Artifact
from convertkit.errors import FeedError, SourceError
from convertkit.onnx.runner import OnnxRunner
from convertkit.stage import Feed, NamedRunner, Outputs, Runner
from convertkit.targets.serving.backends import IR, ONNXRUNTIME, OPENVINO, PLAN_FOLDER, SAVED_MODEL, TENSORRT, VERSION
from convertkit.targets.serving.datatypes import triton_type
from convertkit.targets.serving.schema import read_config


class RepositoryRunner:
    """Executes the model in ``<model>/1``, and takes only what ``config.pbtxt`` lets through.

    The server's own checks are these: a request has the inputs of the configuration, in their types and sizes.  What a
    plan of TensorRT is built from runs in ONNX Runtime, without its own integer kernels, which TensorRT does not use.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._inner: Runner | None = None
        self._runtime = f"ONNX Runtime {ort.__version__}"
        self._config: Any = None

    def __enter__(self) -> Self:
        model = only_model(self._artifact.path)
        self._config = read_config(model / "config.pbtxt")
        self._check(model)
        self._inner = _runner(self._artifact, model / VERSION, self._config).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(kind, error, trace)
        self._inner = None

    @property
    def runtime(self) -> str:
        """What executes the model here; known once it is open."""
        if isinstance(self._inner, NamedRunner):
            self._runtime = self._inner.runtime
        return self._runtime

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``FeedError`` for what the server would not let through."""
        assert self._inner is not None, "the runner is used as a context manager"
        specs = {spec.name: spec for spec in self._artifact.inputs}
        for described in self._config.input:
            if described.name not in feed:
                raise FeedError(f"the feed has no array for input {described.name}")
            self._let_through(described, specs[described.name].encode(np.asarray(feed[described.name])))
        return self._inner.run(feed)

    def _check(self, model: Path) -> None:
        """Raise ``SourceError`` where the configuration names another model, other tensors or other types."""
        named = self._config.name
        if named != model.name:
            raise SourceError(f"{model / 'config.pbtxt'} names the model {named!r}, its folder {model.name!r}")
        pairs = ((self._config.input, self._artifact.inputs), (self._config.output, self._artifact.outputs))
        for described, specs in pairs:
            wanted = {spec.name: triton_type(spec) for spec in specs}
            found = {each.name: _type_name(each) for each in described}
            if found != wanted:
                raise SourceError(f"{model / 'config.pbtxt'} has {found}, the model {wanted}")

    def _let_through(self, described: Any, value: Array) -> None:
        sizes = list(value.shape)
        if self._config.max_batch_size:
            if not sizes or sizes[0] < 1:
                raise FeedError(f"input {described.name} has no batch")
            sizes = sizes[1:]
        wanted = list(described.reshape.shape) if described.HasField("reshape") else list(described.dims)
        if len(sizes) != len(wanted) or any(want not in (-1, size) for want, size in zip(wanted, sizes, strict=True)):
            raise FeedError(f"input {described.name} has the sizes {sizes}, the configuration {wanted}")


def packaged_model(repository: Path) -> Path:
    """The file or folder that computes what the only model of ``repository`` does."""
    model = only_model(repository)
    config = read_config(model / "config.pbtxt")
    if config.backend == TENSORRT.name:
        return model / PLAN_FOLDER / "model.onnx"
    names = {OPENVINO.name: IR, "": SAVED_MODEL}
    return model / VERSION / names.get(config.backend, "model.onnx")


def _runner(artifact: Artifact, version: Path, config: Any) -> Runner:
    """What runs the model here as its backend would."""
    found = replace(artifact, path=packaged_model(version.parent.parent))
    if config.backend == OPENVINO.name:
        from convertkit.targets.openvino.runner import OpenVinoRunner

        return OpenVinoRunner(found, exact=False)
    if config.platform:
        from convertkit.targets.tf_serving.runner import SavedModelRunner

        return SavedModelRunner(replace(found, path=version.parent))
    optimised = config.backend == ONNXRUNTIME.name and not _accelerator(config)
    return OnnxRunner(replace(found, format="onnx"), optimised=optimised)


def only_model(repository: Path) -> Path:
    """The folder of the only model in a repository; ``SourceError`` where there is none, or another one."""
    found = [each for each in sorted(repository.iterdir()) if each.is_dir()]
    if len(found) != 1:
        raise SourceError(f"{repository} holds {len(found)} models; expected one")
    return found[0]


def details(repository: Path) -> Mapping[str, Any]:
    """What the configuration says, for a reader."""
    config = read_config(only_model(repository) / "config.pbtxt")
    backend = config.backend or config.platform
    return {"name": config.name, "backend": backend, "max_batch": config.max_batch_size}


def _accelerator(config: Any) -> str:
    """What ONNX Runtime hands the model to on a GPU, empty without one."""
    return next((each.name for each in config.optimization.execution_accelerators.gpu_execution_accelerator), "")


def _type_name(described: Any) -> str:
    values = described.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    return str(values[described.data_type].name)
