"""Padding of sliding windows of tensors whose first two axes are batch and channels."""

from __future__ import annotations

from convertkit.targets.coreml.tensor import Tensor
from convertkit.targets.forms import windows
from convertkit.targets.forms.windows import Pads, ones

__all__ = ["Pads", "flat", "grown", "ones", "pads_of"]


def pads_of(
    x: Tensor,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...] | None,
    auto_pad: str,
) -> Pads:
    """The padding of each spatial axis of ``x``."""
    return windows.pads_of(x.shape[2:], kernel, strides, dilations, pads, auto_pad)


def grown(x: Tensor, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], pads: Pads) -> Pads:
    """The padding at the end that ``ceil_mode`` implies."""
    return windows.grown(x.shape[2:], kernel, strides, dilations, pads)


def flat(pads: Pads) -> tuple[int, ...]:
    """As MIL has them: before and after of one axis, then of the next one."""
    return tuple(each for pad in pads for each in pad)
