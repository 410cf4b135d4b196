"""Triton's backends: which files of a model they read, and what a configuration has to say for each.

Sources: Triton 2.73, model repository and model configuration; openvino_backend, README.md and src/openvino.cc of
August 2026; tensorflow_backend, README.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from convertkit.artifact import Artifact
from convertkit.targets.serving.containers import TENSORFLOW_TRITON_IMAGE, TRITON_IMAGE
from convertkit.targets.serving.golden import put_model

VERSION = "1"
PLAN_FOLDER = "tensorrt"
"""In the model's folder: the package that the plan is built from.  Triton reads folders that are numbers."""
IR = "model.xml"
SAVED_MODEL = "model.savedmodel"


@dataclass(frozen=True, slots=True)
class Backend:
    """How a server runs models of one format, of which ``file`` lies in the version's folder.

    ``put`` writes them there from an artifact.  ``platform`` is the older name, which TensorFlow's models have.
    ``accelerator`` is what the backend hands the model to on a GPU.
    ``rounds``: it computes in bfloat16 where its CPU has that.  ``pads``: a call always has the most samples, the rest
    of them padding, so that requests are put together only where the user asks for that.  ``scalars``: whether tensors
    may be without sizes.  ``batched`` are its parameters where requests are put together.
    """

    name: str
    file: str
    put: Callable[[Artifact, Path], None]
    image: str = TRITON_IMAGE
    platform: str = ""
    accelerator: str = ""
    kind: str = "KIND_AUTO"
    pads: bool = False
    scalars: bool = True
    rounds: bool = False
    batched: tuple[tuple[str, str], ...] = ()


def _onnx(source: Artifact, version: Path) -> None:
    put_model(source.path, version)


def _plan(source: Artifact, version: Path) -> None:
    """What a plan is built from: the whole package of the ``tensorrt`` target."""
    shutil.copytree(source.path.parent, version.with_name(PLAN_FOLDER))


def _ir(source: Artifact, version: Path) -> None:
    version.mkdir(parents=True)
    for path in (source.path, source.path.with_suffix(".bin")):
        shutil.copyfile(path, version / path.name)


def _saved_model(source: Artifact, version: Path) -> None:
    from convertkit.targets.tf_serving.runner import only_model

    shutil.copytree(only_model(source.path), version / SAVED_MODEL, ignore=shutil.ignore_patterns("assets.extra"))


ONNXRUNTIME = Backend("onnxruntime", "model.onnx", _onnx)
ONNXRUNTIME_TENSORRT = Backend("onnxruntime", "model.onnx", _onnx, accelerator="tensorrt")
TENSORRT = Backend("tensorrt", "model.plan", _plan, kind="KIND_GPU")
OPENVINO = Backend(
    "openvino",
    IR,
    _ir,
    kind="KIND_CPU",
    pads=True,
    scalars=False,
    rounds=True,
    batched=(("ENABLE_BATCH_PADDING", "YES"),),
)
TENSORFLOW = Backend(
    "tensorflow", SAVED_MODEL, _saved_model, image=TENSORFLOW_TRITON_IMAGE, platform="tensorflow_savedmodel"
)
"""The backend that Triton's images had until 25.02 (triton-inference-server/server, build.py)."""
