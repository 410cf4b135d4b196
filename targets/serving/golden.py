"""One call with its answer, beside a package: a request to send to the server, and what it has to answer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import Unsupported
from convertkit.stage import Feed, Outputs
from convertkit.targets.serving import requests


@dataclass(frozen=True, slots=True)
class Call:
    """Arrays by name, as the model's own interface has them, and the specs of both sides."""

    name: str
    ins: tuple[TensorSpec, ...]
    outs: tuple[TensorSpec, ...]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    @classmethod
    def of(cls, artifact: Artifact, name: str, feed: Feed, outputs: Outputs) -> Self:
        """The call of the model that a server knows as ``name``; arrays in the source's layout become the model's."""
        given = {spec.name: spec.encode(np.asarray(feed[spec.name])) for spec in artifact.inputs}
        got = {spec.name: spec.encode(np.asarray(outputs[spec.name])) for spec in artifact.outputs}
        return cls(name, artifact.inputs, artifact.outputs, given, got)


def write_golden(call: Call, folder: Path) -> bool:
    """Write ``request.json`` and ``response.json``; False, and nothing, where the protocol has no JSON for a dtype."""
    try:
        asked = requests.request(call.ins, call.inputs)
        answered = requests.response(call.name, call.outs, call.outputs)
    except Unsupported:
        return False
    folder.mkdir()
    (folder / "request.json").write_text(requests.text(asked), encoding="utf-8")
    (folder / "response.json").write_text(requests.text(answered), encoding="utf-8")
    return True


def put_model(model: Path, folder: Path) -> None:
    """Copy an ``.onnx`` and the weights beside it, where there are any, into a new ``folder``."""
    folder.mkdir(parents=True)
    shutil.copyfile(model, folder / model.name)
    weights = model.with_name(model.name + ".data")
    if weights.exists():
        shutil.copyfile(weights, folder / weights.name)
