"""The frequencies of a Fourier transform's bins, as ranges of whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten


def _of_all_bins(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """0, 1, … and then the negative ones, in units of 1 / (n d): float32, or ``dtype``, [n]."""
    dtype = dtype or torch.get_default_dtype()
    parts = [torch.arange(0, (n + 1) // 2, dtype=dtype), torch.arange(-(n // 2), 0, dtype=dtype)]
    return torch.cat(parts) * (1.0 / (n * d))


def _of_half(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Those that a transform of real numbers has: float32, or ``dtype``, [n // 2 + 1]."""
    return torch.arange(0, n // 2 + 1, dtype=dtype or torch.get_default_dtype()) * (1.0 / (n * d))


FREQUENCIES: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {_ATEN.fft_fftfreq.default: _of_all_bins, _ATEN.fft_rfftfreq.default: _of_half}
)
