"""What runs the files: its name, its version, its settings, and the worker that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

SERVICE = "convertkit.targets.ncnn.service:NcnnService"
SETTINGS: Mapping[str, bool | int] = {
    "use_fp16_packed": False,
    "use_fp16_storage": False,
    "use_fp16_arithmetic": False,
    "use_bf16_packed": False,
    "use_bf16_storage": False,
    "use_winograd_convolution": False,
    "use_vulkan_compute": False,
    "num_threads": 1,
}
"""float32 throughout, and convolutions as they are written."""


def runtime_name() -> str:
    """The runtime with its version."""
    return f"ncnn {version('ncnn')}"
