"""The processors whose costs ONNX Runtime's integers can be placed by."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.operators import ErrorOfEstimates
from convertkit.recipe import THIS, MeasuredDevice
from convertkit.targets.forms.devices import MIXES

MACHINES = ("x86", "arm64-a55", "arm64-a76", "arm64-i8mm")
"""Those with tables: x86 was measured, the others are emulated (docs/measurements/device-costs.md)."""
DEVICES = (*MACHINES, *MIXES)

_SIGNED = frozenset({"arm64-a76"})
_COMPARED = ErrorOfEstimates(1.0, None, 0.11, 0.34)
"""Of 17 whole files beside emulation of an A76, of 1.6 to 62 ms: docs/measurements/device-costs.md."""


def error_of(device: str, ms: float) -> ErrorOfEstimates | None:
    """Of estimates of about ``ms`` for ``device``; None where none was compared with anything."""
    return _COMPARED if device == "arm64-a76" and ms >= _COMPARED.from_ms else None


def signed_on(devices: Sequence[str]) -> bool:
    """Whether products of signed activations are faster than of unsigned ones on all of ``devices``.

    Emulated MobileNetV2, signed and unsigned: 16.3 and 17.4 ms on an A76, 20.0 and 15.9 with i8mm, 81.9 and 68.5 on an
    A55 (docs/measurements/device-costs.md).
    """
    return bool(devices) and set(devices) <= _SIGNED


def known(devices: Sequence[str], measured: MeasuredDevice | None = None) -> tuple[str, ...]:
    """Those that have tables here: where several targets are exported at once, a device may be another's.

    The device ``this`` has those that were ``measured``.
    """
    return tuple(name for name in devices if name in DEVICES or (name == THIS and measured is not None))
