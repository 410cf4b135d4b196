"""The worker that holds TensorRT-RTX: parses a model and builds an engine, without a GPU."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorrt_rtx as trt

from convertkit.artifact import Array
from convertkit.errors import ToolError, Unsupported
from convertkit.workers.process import Reply

_OPERATION = re.compile(r"operation '([^']+)'")
_PLACES = re.compile(r"\.? In \w+ at /_src/.*$|^IBuilder::\w+: |Error Code \d+: |Myelin \(|\[[\w.]+:\d+: \w+\] ")
"""Where in TensorRT's own source an error was raised."""
_OTHERS = ("--target onnxruntime, for Triton with --package triton", "leave --tensorrt-rtx-sm out")


class _Log(trt.ILogger):  # type: ignore[misc]
    """Keeps what TensorRT-RTX says of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        """Called by TensorRT-RTX."""
        if severity <= trt.ILogger.Severity.ERROR:
            self.errors.append(message)


class RtxService:
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._log = _Log()

    def build(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Write ``engine`` from the ONNX at ``model`` for the compute capabilities ``sms``.

        ``shapes`` has the least, usual and greatest shape of each input with dynamic dimensions, ``sparse`` turns
        kernels for 2:4 weights on.  Raises ``Unsupported`` with what the parser or the builder says.
        """
        builder = trt.Builder(self._log)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, self._log)
        if not parser.parse_from_file(str(params["model"])):
            raise _parsing(parser)
        made = builder.build_serialized_network(network, self._configured(builder, params))
        if made is None:
            raise _building(self._log.errors)
        content = bytes(made)
        Path(params["engine"]).write_bytes(content)
        return Reply({"sha256": hashlib.sha256(content).hexdigest()})

    def _configured(self, builder: Any, params: Mapping[str, Any]) -> Any:
        config = builder.create_builder_config()
        config.num_compute_capabilities = len(params["sms"])
        for place, sm in enumerate(params["sms"]):
            config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{sm}"), place)
        if params["sparse"]:
            config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
        profile = builder.create_optimization_profile()
        for name, shapes in params["shapes"].items():
            profile.set_shape(name, *shapes)
        if params["shapes"] and config.add_optimization_profile(profile) < 0:
            raise ToolError(f"TensorRT-RTX takes no profile of these sizes: {'; '.join(self._log.errors)[:400]}")
        return config


def _parsing(parser: Any) -> Unsupported:
    """What the parser says of the first node that it does not take."""
    if not parser.num_errors:
        return Unsupported("TensorRT-RTX does not parse the model", ways_out=_OTHERS)
    error = parser.get_error(0)
    node = f"{error.node_name()} ({error.node_operator()})" if error.node_operator() else ""
    said = " ".join(str(error.desc()).split())
    reason = f"its {error.func()} refuses it" if said == "false" else said.removeprefix("Assertion failed: ")
    return Unsupported(f"TensorRT-RTX does not parse it: {reason[:400]}", subject=node, ways_out=_OTHERS)


def _building(errors: list[str]) -> Unsupported:
    """What the builder says last, with the node where it names one."""
    said = _PLACES.sub("", " ".join(errors[-1].split()))[:400] if errors else "it gives no reason"
    named = _OPERATION.search(said)
    return Unsupported(f"TensorRT-RTX builds no engine: {said}", subject=named[1] if named else "", ways_out=_OTHERS)
