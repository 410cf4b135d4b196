"""The processors whose costs ONNX Runtime's integers can be placed by."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.operators import ErrorOfEstimates

DEVICES = ("x86", "arm64-a76")
"""Those with tables: x86 was measured, the other is emulated (docs/measurements/device-costs.md)."""

_COMPARED = ErrorOfEstimates(1.0, None, 0.11, 0.21)
"""Of nine whole files beside emulation of an A76, of 1.6 to 52 ms: docs/measurements/device-costs.md."""


def error_of(device: str, ms: float) -> ErrorOfEstimates | None:
    """Of estimates of about ``ms`` for ``device``; None where none was compared with anything."""
    return _COMPARED if device == "arm64-a76" and ms >= _COMPARED.from_ms else None


def known(devices: Sequence[str]) -> tuple[str, ...]:
    """Those that have tables here: where several targets are exported at once, a device may be another's."""
    return tuple(name for name in devices if name in DEVICES)
