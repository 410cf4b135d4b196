"""The processors whose costs ONNX Runtime's integers can be placed by."""

from __future__ import annotations

from collections.abc import Sequence

DEVICES = ("x86", "arm64-a76")
"""Those with tables: x86 was measured, the other is emulated (docs/measurements/device-costs.md)."""


def known(devices: Sequence[str]) -> tuple[str, ...]:
    """Those that have tables here: where several targets are exported at once, a device may be another's."""
    return tuple(name for name in devices if name in DEVICES)
