"""Handlers of convolutions and pools, which take a node's attributes as one value.

A handler's signature is the operator's schema; here it is written once for all compilers whose images have channels
in front of space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from convertkit.targets.forms.windows import Pool, Stated, Transposed

B = TypeVar("B")
T = TypeVar("T")


def convolution(handler: Callable[[B, T, T, T | None, Stated, int], T]) -> Callable[..., T]:
    """Conv: builder, image, weights, bias, attributes, groups."""

    def conv(
        b: B,
        x: T,
        w: T,
        bias: T | None,
        *,
        auto_pad: str = "NOTSET",
        dilations: tuple[int, ...] | None = None,
        group: int = 1,
        kernel_shape: tuple[int, ...] | None = None,
        pads: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> T:
        return handler(b, x, w, bias, Stated(strides, dilations, pads, auto_pad), group)

    return conv


def transposed(handler: Callable[[B, T, T, T | None, Transposed, int], T]) -> Callable[..., T]:
    """ConvTranspose: builder, image, weights, bias, attributes, groups."""

    def conv_transpose(
        b: B,
        x: T,
        w: T,
        bias: T | None,
        *,
        auto_pad: str = "NOTSET",
        dilations: tuple[int, ...] | None = None,
        group: int = 1,
        kernel_shape: tuple[int, ...] | None = None,
        output_padding: tuple[int, ...] | None = None,
        output_shape: tuple[int, ...] | None = None,
        pads: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> T:
        stated = Stated(strides, dilations, pads, auto_pad)
        return handler(b, x, w, bias, Transposed(stated, output_padding, output_shape), group)

    return conv_transpose


def maximum(handler: Callable[[B, T, Pool], T]) -> Callable[..., T]:
    """MaxPool without indices, of which alone ``storage_order`` is."""

    def max_pool(
        b: B,
        x: T,
        *,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: tuple[int, ...] | None = None,
        kernel_shape: tuple[int, ...],
        pads: tuple[int, ...] | None = None,
        storage_order: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> T:
        return handler(b, x, Pool(kernel_shape, Stated(strides, dilations, pads, auto_pad), bool(ceil_mode)))

    return max_pool


def average(handler: Callable[[B, T, Pool], T]) -> Callable[..., T]:
    """AveragePool from opset 19 on."""

    def average_pool(
        b: B,
        x: T,
        *,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        dilations: tuple[int, ...] | None = None,
        kernel_shape: tuple[int, ...],
        pads: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> T:
        stated = Stated(strides, dilations, pads, auto_pad)
        return handler(b, x, Pool(kernel_shape, stated, bool(ceil_mode), bool(count_include_pad)))

    return average_pool


def average_11(handler: Callable[[B, T, Pool], T]) -> Callable[..., T]:
    """AveragePool up to opset 18: without dilations."""

    def average_pool_11(
        b: B,
        x: T,
        *,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        kernel_shape: tuple[int, ...],
        pads: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> T:
        stated = Stated(strides, None, pads, auto_pad)
        return handler(b, x, Pool(kernel_shape, stated, bool(ceil_mode), bool(count_include_pad)))

    return average_pool_11
