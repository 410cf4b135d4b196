"""Which program executed an artifact: what a comparison says is true of that one, in that version."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from convertkit import plugins
from convertkit.artifact import PROCESSED, Artifact
from convertkit.stage import NamedRunner

_PYTORCH = ("PyTorch", ("torch",))
_JAX = ("JAX", ("jax",))
_TENSORFLOW = ("TensorFlow", ("tensorflow-cpu", "tensorflow"))
_SOURCES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("torchscript", "pt2", "state-dict", "safetensors", "sharded"), _PYTORCH),
    **dict.fromkeys(("pickled-module", "torch-factory"), _PYTORCH),
    **dict.fromkeys(("keras", "keras-h5"), ("Keras", ("keras",))),
    **dict.fromkeys(("savedmodel", "graphdef"), _TENSORFLOW),
    **dict.fromkeys(("jax-export", "jax-callable", "stablehlo"), _JAX),
    "onnx": ("ONNX Runtime", ("onnxruntime",)),
    "tflite": ("LiteRT", ("ai-edge-litert",)),
    **dict.fromkeys(("huggingface", "mxnet"), ("float64, NumPy", ("numpy",))),
}


def runtime_of(artifact: Artifact) -> str:
    """What executed an artifact here; its format where the runner does not tell."""
    runner = plugins.runner(artifact)
    return runner.runtime if isinstance(runner, NamedRunner) else artifact.format


def source_runtime(source: Artifact) -> str:
    """What executed the source here: its framework, with the version that is installed."""
    kind = source.format.removesuffix(PROCESSED)
    title, packages = _SOURCES.get(kind, (kind, ()))
    for package in packages:
        try:
            return f"{title} {version(package)}"
        except PackageNotFoundError:
            continue
    return title
