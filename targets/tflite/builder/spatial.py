"""Operators over channels-last images, signals and volumes."""

from __future__ import annotations

from typing import Literal

from convertkit.targets.tflite.builder.core import NONE, BuilderCore
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

Padding = Literal["SAME", "VALID"]
_PADDING = {"SAME": 0, "VALID": 1}


class Spatial(BuilderCore):
    """Convolutions, pools and resampling; images are NHWC, volumes NDHWC."""

    def conv_2d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        padding: Padding,
        strides: tuple[int, int] = (1, 1),
        dilations: tuple[int, int] = (1, 1),
    ) -> Tensor:
        """Convolution with ``weight`` OHWI (I is channels per group) and ``bias`` O."""
        size = _out_sizes(x.shape[1:3], weight.shape[1:3], strides, dilations, padding)
        shape = (x.shape[0], *size, weight.shape[0])
        options = _window(padding, strides) | _dilation(dilations)
        return self.emit("CONV_2D", (x, weight, bias), shape, x.dtype, options, self.result_of(x))

    def depthwise_conv_2d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        padding: Padding,
        strides: tuple[int, int] = (1, 1),
        dilations: tuple[int, int] = (1, 1),
    ) -> Tensor:
        """Depthwise convolution with ``weight`` 1HWO; O is a multiple of the input's channels."""
        size = _out_sizes(x.shape[1:3], weight.shape[1:3], strides, dilations, padding)
        shape = (x.shape[0], *size, weight.shape[3])
        options = _window(padding, strides) | _dilation(dilations)
        options["depth_multiplier"] = weight.shape[3] // x.shape[3]
        return self.emit("DEPTHWISE_CONV_2D", (x, weight, bias), shape, x.dtype, options, self.result_of(x))

    def transpose_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        sizes: Tensor,
        shape: tuple[int, ...],
        padding: Padding,
        strides: tuple[int, int],
    ) -> Tensor:
        """Transposed convolution with ``weight`` OHWI; ``sizes`` is the output's shape as int32."""
        options = _window(padding, strides)
        inputs = (sizes, weight, x) if bias is None else (sizes, weight, x, bias)
        return self.emit("TRANSPOSE_CONV", inputs, shape, x.dtype, options, self.result_of(x))

    def conv_3d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        padding: Padding,
        strides: tuple[int, int, int] = (1, 1, 1),
        dilations: tuple[int, int, int] = (1, 1, 1),
    ) -> Tensor:
        """Convolution of volumes with ``weight`` DHWIO."""
        size = _out_sizes(x.shape[1:4], weight.shape[0:3], strides, dilations, padding)
        options = _volume(padding, strides, dilations)
        inputs = (x, weight) if bias is None else (x, weight, bias)
        return self.emit("CONV_3D", inputs, (x.shape[0], *size, weight.shape[4]), x.dtype, options)

    def conv_3d_transpose(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        sizes: Tensor,
        shape: tuple[int, ...],
        padding: Padding,
        strides: tuple[int, int, int],
    ) -> Tensor:
        """Transposed convolution of volumes with ``weight`` DHWOI."""
        options = _volume(padding, strides, (1, 1, 1))
        inputs = (sizes, weight, x) if bias is None else (sizes, weight, x, bias)
        return self.emit("CONV_3D_TRANSPOSE", inputs, shape, x.dtype, options)

    def average_pool_2d(
        self, x: Tensor, *, window: tuple[int, int], strides: tuple[int, int], padding: Padding
    ) -> Tensor:
        """Mean over each window; padding does not count."""
        return self._pool("AVERAGE_POOL_2D", x, window, strides, padding)

    def max_pool_2d(self, x: Tensor, *, window: tuple[int, int], strides: tuple[int, int], padding: Padding) -> Tensor:
        """Maximum over each window."""
        return self._pool("MAX_POOL_2D", x, window, strides, padding)

    def resize_bilinear(
        self, x: Tensor, size: Tensor, out: tuple[int, int], *, align_corners: bool, half_pixel_centers: bool
    ) -> Tensor:
        """``size`` is (height, width) as int32, ``out`` what is known of it now."""
        options = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
        shape = (x.shape[0], *out, x.shape[3])
        return self.emit("RESIZE_BILINEAR", (x, size), shape, x.dtype, options, x.quantization)

    def resize_nearest_neighbor(
        self, x: Tensor, size: Tensor, out: tuple[int, int], *, align_corners: bool, half_pixel_centers: bool
    ) -> Tensor:
        """``size`` is (height, width) as int32, ``out`` what is known of it now."""
        options = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
        shape = (x.shape[0], *out, x.shape[3])
        return self.emit("RESIZE_NEAREST_NEIGHBOR", (x, size), shape, x.dtype, options, x.quantization)

    def depth_to_space(self, x: Tensor, *, block_size: int) -> Tensor:
        """Channels to blocks of pixels, ONNX's DCR order."""
        n, h, w, c = x.shape
        shape = (n, _times(h, block_size), _times(w, block_size), _over(c, block_size**2))
        return self.emit("DEPTH_TO_SPACE", (x,), shape, x.dtype, {"block_size": block_size}, x.quantization)

    def space_to_depth(self, x: Tensor, *, block_size: int) -> Tensor:
        """Blocks of pixels to channels."""
        n, h, w, c = x.shape
        shape = (n, _over(h, block_size), _over(w, block_size), _times(c, block_size**2))
        return self.emit("SPACE_TO_DEPTH", (x,), shape, x.dtype, {"block_size": block_size}, x.quantization)

    def _pool(
        self, code: str, x: Tensor, window: tuple[int, int], strides: tuple[int, int], padding: Padding
    ) -> Tensor:
        size = _out_sizes(x.shape[1:3], window, strides, (1, 1), padding)
        options = _window(padding, strides) | {"filter_height": window[0], "filter_width": window[1]}
        return self.emit(code, (x,), (x.shape[0], *size, x.shape[3]), x.dtype, options, x.quantization)


def _window(padding: Padding, strides: tuple[int, int]) -> dict[str, int]:
    return {
        "padding": _PADDING[padding],
        "stride_h": strides[0],
        "stride_w": strides[1],
        "fused_activation_function": NONE,
    }


def _dilation(dilations: tuple[int, int]) -> dict[str, int]:
    return {"dilation_h_factor": dilations[0], "dilation_w_factor": dilations[1]}


def _volume(padding: Padding, strides: tuple[int, int, int], dilations: tuple[int, int, int]) -> dict[str, int]:
    options = {"padding": _PADDING[padding], "fused_activation_function": NONE}
    for axis, stride, dilation in zip("dhw", strides, dilations, strict=True):
        options[f"stride_{axis}"] = stride
        options[f"dilation_{axis}_factor"] = dilation
    return options


def _out_sizes(
    sizes: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    padding: Padding,
) -> tuple[int, ...]:
    result = []
    for size, kernel, stride, dilation in zip(sizes, window, strides, dilations, strict=True):
        reach = 1 if padding == "SAME" else (kernel - 1) * dilation + 1
        result.append(DYNAMIC if size == DYNAMIC else -(-(size - reach + 1) // stride))
    return tuple(result)


def _times(size: int, factor: int) -> int:
    return DYNAMIC if size == DYNAMIC else size * factor


def _over(size: int, factor: int) -> int:
    return DYNAMIC if size == DYNAMIC else size // factor
