"""Models whose stored code calls TensorFlow: Keras on TensorFlow writes a SavedModel, which is converted instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from convertkit.artifact import sha256_of
from convertkit.converters.tensorflow.source import TensorFlowSource, open_saved_model
from convertkit.errors import ConvertKitError
from convertkit.recipe import ExportOptions
from convertkit.workers.process import Worker

_ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "-1"}  # fmt: skip


def through_tensorflow(path: Path, options: ExportOptions, workdir: Path, reason: ConvertKitError) -> TensorFlowSource:
    """The Keras model in ``path``, held by TensorFlow; ``reason`` says why JAX does not compute it."""
    folder = workdir / "saved_model"
    service = "convertkit.converters.keras.service:KerasService"
    params = {"path": str(path), "model": options.model, "trust": sorted(options.trust), "workdir": str(workdir)}
    with Worker(service, timeout_s=options.timeout_s, env=_ENVIRONMENT) as worker:
        worker.call("open", params)
        worker.call("save", {"to": str(folder)})
    notes = (
        "Python code stored in the file was trusted (--trust lambda)",
        f"Keras on TensorFlow wrote a SavedModel; not taken: Keras on JAX: {str(reason).splitlines()[0]}",
    )
    source = open_saved_model(folder, options, workdir, notes)
    source.artifact = replace(source.artifact, path=path, sha256=sha256_of(path))
    return source
