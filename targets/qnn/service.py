"""The worker that holds Qualcomm's libraries: makes context binaries, and runs them in the HTP simulator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort
import onnxruntime_qnn

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.onnx.onnxruntime_compat import ERRORS
from convertkit.targets.qnn.devices import SOCS
from convertkit.workers.process import Reply

_NAME = "QNN"


class QnnService:
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        ort.register_execution_provider_library(_NAME, onnxruntime_qnn.get_library_path())
        self._devices = [each for each in ort.get_ep_devices() if each.ep_name == _NAME][:1]
        self._session: Any = None

    def compile(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Write ``context`` from the ONNX at ``model``, for the chip ``soc``; nodes that the NPU lacks stay in it."""
        options = ort.SessionOptions()
        entries = {"enable": "1", "file_path": params["context"], "embed_mode": "0"}
        for key, value in entries.items():
            options.add_session_config_entry(f"ep.context_{key}", value)
        model = Path(params["model"])
        os.chdir(model.parent)  # ONNX Runtime puts a hash of the path that it is given into names in the binary
        self._open(options, Path(model.name), str(params["soc"]), "compile")
        return Reply()

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open ``context``; ``ToolError`` where a node of it is not for the NPU."""
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        self._session = self._open(options, Path(params["context"]), str(params["soc"]), "load")
        return Reply()

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """All outputs for one call."""
        names = [each.name for each in self._session.get_outputs()]
        try:
            found = self._session.run(names, dict(arrays))
        except ERRORS as error:
            raise ToolError(f"the HTP simulator fails: {_brief(error)}") from error
        return Reply(arrays=dict(zip(names, found, strict=True)))

    def _open(self, options: Any, path: Path, soc: str, does: str) -> Any:
        chip = SOCS[soc]
        provider = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "soc_model": str(chip.model)}
        # Else the quantization of inputs and outputs stays on the CPU.
        provider |= {"htp_arch": str(chip.arch), "offload_graph_io_quantization": "0"}
        options.add_provider_for_devices(self._devices, provider)
        try:
            return ort.InferenceSession(str(path), options)
        except ERRORS as error:
            raise ToolError(f"QNN does not {does} {path.name} for {soc}: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
