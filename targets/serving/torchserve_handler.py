"""What TorchServe runs for each request: the ONNX model in ONNX Runtime.  It lies in the archive, beside the model.

Requests and answers are the JSON of the Open Inference Protocol, version 2.  Requests that the server puts together are
run one by one, since the model may mix the samples of a call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

_TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "object",
}
_NAMES = {name: protocol for protocol, name in _TYPES.items()}


class OnnxHandler:
    """Loads the model once, answers a list of requests with a list of responses."""

    def __init__(self) -> None:
        self.session: Any = None
        self.name = ""

    def initialize(self, context: Any) -> None:
        """Load the archive's model: ``context`` has the folder that it was unpacked into, and the manifest."""
        model = context.manifest["model"]
        self.name = model["modelName"]
        path = os.path.join(context.system_properties["model_dir"], model["serializedFile"])
        self.session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())

    def handle(self, data: Sequence[Mapping[str, Any]], context: Any) -> list[dict[str, Any]]:
        """One response for each request of ``data``."""
        return [self._answer(row.get("body") or row.get("data")) for row in data]

    def _answer(self, body: Any) -> dict[str, Any]:
        if isinstance(body, bytes | bytearray | str):
            body = json.loads(body)
        given = {each["name"]: _array(each) for each in body["inputs"]}
        names = [each.name for each in self.session.get_outputs()]
        values = self.session.run(names, given)
        outputs = [_tensor(name, np.asarray(value)) for name, value in zip(names, values, strict=True)]
        return {"model_name": self.name, "outputs": outputs}


def _array(tensor: Mapping[str, Any]) -> Any:
    return np.array(tensor["data"], _TYPES[tensor["datatype"]]).reshape(tensor["shape"])


def _tensor(name: str, value: Any) -> dict[str, Any]:
    kind = "BYTES" if value.dtype.kind in "OSU" else _NAMES[value.dtype.name]
    return {"name": name, "shape": list(value.shape), "datatype": kind, "data": value.ravel().tolist()}
