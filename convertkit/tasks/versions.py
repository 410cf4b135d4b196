"""The version of code that computes: of our own files, and of the libraries that are installed."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata

OURS = "convertkit"
LIBRARIES = (
    "ai-edge-litert", "flax", "h5py", "jax", "jaxlib", "keras", "ml_dtypes", "numpy", "onnx",
    "onnx-ir", "onnxruntime", "onnxruntime-gpu", "onnxscript", "openvino", "pillow", "safetensors", "scipy",
    "ethos-u-vela", "executorch", "litert-lm-api", "litert-lm-builder", "mnn", "ncnn", "onnxruntime-genai",
    "onnxruntime-qnn",
    "tensorflow", "tensorflow-cpu", "tensorrt-rtx", "tf2onnx", "tf_keras", "torch",
)  # fmt: skip
"""Distributions whose code decides results."""
_DECIDES = frozenset({".py", ".json", ".toml", ".jinja", ".swift", ".html", ".css", ".js"})
"""Endings of sources, and of what packages for phones and pages are written from."""
_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)


@cache
def code_version(package: str = OURS) -> str:
    """Sha256 of all source and data files of convertkit and of ``package``, and of the installed libraries' versions.

    ``package`` is a module that is imported already.  No library is imported.  About 30 ms, once in a process.
    """
    digest = hashlib.sha256()
    for name in dict.fromkeys((OURS, package)):
        for place, path in _files(name):
            digest.update(f"{name}/{place}\0".encode())
            with open(path, "rb", buffering=0) as file:
                digest.update(hashlib.sha256(file.read()).digest())
    for library in LIBRARIES:
        digest.update(f"{library} {_version(library)}\0".encode())
    digest.update(f"python {sys.version_info.major}.{sys.version_info.minor}".encode())
    return digest.hexdigest()


def _files(package: str) -> Iterator[tuple[str, str]]:
    """Every file of the package that decides something: its place in it and its path, in a fixed order."""
    module = sys.modules[package]
    folders = getattr(module, "__path__", None)
    if folders is None:
        file = getattr(module, "__file__", None)  # a prompt has none
        yield from () if file is None else ((package, file),)
        return
    for folder in folders:
        for above, below, names in os.walk(folder, followlinks=True):
            below[:] = sorted(name for name in below if name != "__pycache__")
            place = os.path.relpath(above, folder)
            for name in sorted(names):
                if os.path.splitext(name)[1] in _DECIDES:
                    yield os.path.normpath(os.path.join(place, name)), os.path.join(above, name)


def _version(distribution: str) -> str:
    """The installed version; read off its line, as parsing all of a package's metadata takes 2 ms each."""
    try:
        told = metadata.distribution(distribution).read_text("METADATA") or ""
    except metadata.PackageNotFoundError:
        return "absent"
    found = _VERSION.search(told)
    return metadata.version(distribution) if found is None else found[1]
