"""Inference requests and responses in the JSON of the Open Inference Protocol, version 2.

Source: Open Inference Protocol, "HTTP/REST", inference request JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed, FeedSource
from convertkit.state import initial_state
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


def samples(artifact: Artifact, calibration: FeedSource | None, seed: int) -> tuple[Feed, Feed]:
    """Two calls of one sample each, in the source's layout, with the initial state.

    The user's data where there are two samples of it, else generated values.
    """
    found = [] if calibration is None else list(islice(calibration, 2))
    found += islice(_generated(artifact.inputs, seed), 2 - len(found))
    start = initial_state(artifact)
    return {**start, **found[0]}, {**start, **found[1]}


def _generated(inputs: Sequence[TensorSpec], seed: int) -> Iterator[Feed]:
    """Real numbers also for an integer interface; whole numbers without a range are 0 and 1."""
    drawn = [replace(spec, dtype="float32") if spec.quantization else spec for spec in inputs if not spec.is_state]
    rng = np.random.default_rng(seed)
    while True:
        yield generated_feed(drawn, {}, rng, 0)
