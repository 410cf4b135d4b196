"""Inference requests and responses in the JSON of the Open Inference Protocol, version 2.

Source: Open Inference Protocol, "HTTP/REST", inference request JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.golden import answered
from convertkit.stage import Feed, FeedSource, Runner
from convertkit.targets.serving.datatypes import numpy_type, protocol_type


def request(specs: Sequence[TensorSpec], values: Mapping[str, Array]) -> dict[str, Any]:
    """The body of a request for ``values``, arrays as the model's own interface has them."""
    return {"inputs": [_tensor(spec, values[spec.name]) for spec in specs]}


def response(name: str, specs: Sequence[TensorSpec], values: Mapping[str, Array]) -> dict[str, Any]:
    """What a server answers for the model called ``name``."""
    return {"model_name": name, "outputs": [_tensor(spec, values[spec.name]) for spec in specs]}


def _tensor(spec: TensorSpec, value: Array) -> dict[str, Any]:
    return {
        "name": spec.name,
        "shape": list(value.shape),
        "datatype": protocol_type(spec),
        "data": [_plain(each) for each in value.ravel().tolist()],
    }


def _plain(element: object) -> object:
    return element.decode() if isinstance(element, bytes) else element


def arrays(tensors: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """By name, the arrays of the ``inputs`` of a request or the ``outputs`` of a response."""
    found = dict[str, Array]()
    for each in tensors:
        dtype = numpy_type(each["datatype"])
        kind = np.dtype(object) if dtype == "string" else np.dtype(dtype)
        found[each["name"]] = np.array(each["data"], kind).reshape(each["shape"])
    return found


def text(body: Mapping[str, Any]) -> str:
    """The JSON of a request or a response; floats are written so that they are read again to the bit."""
    return json.dumps(body, allow_nan=True) + "\n"


def samples(runner: Runner, artifact: Artifact, calibration: FeedSource | None, seed: int) -> tuple[Feed, Feed]:
    """Two calls of one sample each that ``runner`` answers, in the source's layout, with the initial state.

    The user's data where there are two samples of it, else generated values.
    """
    found = [] if calibration is None else [feed for feed, _ in answered(artifact, calibration, seed, runner.run, 2)]
    found += [feed for feed, _ in answered(artifact, None, seed, runner.run, 2 - len(found))]
    return found[0], found[1]
