"""The version of code that computes: of our own files, and of the libraries that are installed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

OURS = "convertkit"
LIBRARIES = (
    "ai-edge-litert", "flax", "h5py", "jax", "jaxlib", "keras", "ml_dtypes", "numpy", "onnx",
    "onnx-ir", "onnxruntime", "onnxruntime-gpu", "onnxscript", "openvino", "pillow", "safetensors", "scipy",
    "tensorflow", "tensorflow-cpu", "tensorrt-rtx", "tf2onnx", "tf_keras", "torch",
)  # fmt: skip
"""Distributions whose code decides results."""
_DECIDES = frozenset({".py", ".json", ".toml"})


@cache
def code_version(package: str = OURS) -> str:
    """Sha256 of all source and data files of convertkit and of ``package``, and of the installed libraries' versions.

    ``package`` is a module that is imported already.  No library is imported.  About 30 ms, once in a process.
    """
    digest = hashlib.sha256()
    for name in dict.fromkeys((OURS, package)):
        for place, file in _files(name):
            digest.update(f"{name}/{place}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    for library in LIBRARIES:
        digest.update(f"{library} {_version(library)}\0".encode())
    digest.update(f"python {sys.version_info.major}.{sys.version_info.minor}".encode())
    return digest.hexdigest()


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Every file of the package that decides something, by its place in it, in a fixed order."""
    module = sys.modules[package]
    folders = getattr(module, "__path__", None)
    if folders is None:
        file = getattr(module, "__file__", None)  # a prompt has none
        yield from () if file is None else ((package, Path(file)),)
        return
    for folder in folders:
        for above, below, names in os.walk(folder, followlinks=True):
            below[:] = sorted(name for name in below if name != "__pycache__")
            for name in sorted(names):
                if os.path.splitext(name)[1] in _DECIDES:
                    path = os.path.join(above, name)
                    yield os.path.relpath(path, folder), Path(path)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"
