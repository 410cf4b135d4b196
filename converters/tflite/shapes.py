"""Operators that only move data: shapes, slices, pads, concatenation, block rearrangements, resizing.

Source: TFLite reference kernels of the same names; ``tensorflow/lite/kernels/internal/reference``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.converters.tflite.activations import fused
from convertkit.converters.tflite.builder import FREE, Attributes, Builder, Tensor
from convertkit.converters.tflite.convolutions import TO_NCHW, TO_NHWC
from convertkit.converters.tflite.registry import Registry
from convertkit.converters.tflite.slices import slices
from convertkit.errors import SourceError, Unsupported

_shapes = Registry()
_REFLECT, _SYMMETRIC = 0, 1


@_shapes.reads("RESHAPE", "ReshapeOptions", moves=True)
def reshape(b: Builder, x: Tensor, shape: Tensor | None = None, *, new_shape: tuple[int, ...]) -> Tensor:
    """The input wins over the option; 0 is a size of zero, not ONNX's copy."""
    if shape is None:
        return _reshape(b, x, new_shape)
    if shape.const is not None:
        return _reshape(b, x, shape.integers)
    return b.op("Reshape", [x, b.cast(shape, "int64")], {"allowzero": 1})


def _reshape(b: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    return b.op("Reshape", [x, b.constant(shape)], {"allowzero": 1} if 0 in shape else {})


@_shapes.reads("SQUEEZE", "SqueezeOptions", moves=True)
def squeeze(b: Builder, x: Tensor, *, squeeze_dims: tuple[int, ...]) -> Tensor:
    return b.op("Squeeze", [x, b.constant(squeeze_dims)] if squeeze_dims else [x])


@_shapes.reads("EXPAND_DIMS", moves=True)
def expand_dims(b: Builder, x: Tensor, axis: Tensor) -> Tensor:
    return b.op("Unsqueeze", [x, b.constant(axis.integers)])


@_shapes.reads("TRANSPOSE", moves=True)
def transpose(b: Builder, x: Tensor, perm: Tensor) -> Tensor:
    if sorted(perm.integers) != list(range(x.rank)):
        raise SourceError(f"permutation {perm.integers} of {x.rank} axes")
    return b.transpose(x, perm.integers)


@_shapes.reads("CONCATENATION", "ConcatenationOptions")
def concatenation(b: Builder, *xs: Tensor, axis: int, fused_activation_function: int) -> Tensor:
    """Behind a transposition that all inputs share, so that it can cancel."""
    moves = [b.moved(x) for x in xs]
    found = [move for move in moves if move is not None]
    if len(found) == len(xs) and len({perm for _, perm in found}) == 1:
        perm = found[0][1]
        y = b.transpose(b.op("Concat", [x for x, _ in found], {"axis": perm[axis]}), perm)
    else:
        y = b.op("Concat", xs, {"axis": axis})
    return fused(b, y, fused_activation_function)


@_shapes.reads("PACK", "PackOptions", moves=True)
def pack(b: Builder, *xs: Tensor, values_count: int, axis: int) -> Tensor:
    grown = [b.op("Unsqueeze", [x, b.constant([axis])]) for x in xs]
    return b.op("Concat", grown, {"axis": axis})


@_shapes.reads("UNPACK", "UnpackOptions", moves=True)
def unpack(b: Builder, x: Tensor, *, num: int, axis: int) -> tuple[Tensor, ...]:
    if num != len(b.results):
        raise SourceError(f"num={num} and {len(b.results)} outputs")
    parts = b.ops("Split", [x], {"axis": axis, "num_outputs": num}, num)
    return tuple(b.op("Squeeze", [part, b.constant([axis])]) for part in parts)


@_shapes.reads("SPLIT", "SplitOptions", moves=True)
def split(b: Builder, axis: Tensor, x: Tensor, *, num_splits: int) -> tuple[Tensor, ...]:
    place = axis.integers[0] % x.rank
    if num_splits != len(b.results) or (x.dims[place] != FREE and x.dims[place] % num_splits):
        raise SourceError(f"{x.dims[place]} elements in {num_splits} equal parts for {len(b.results)} outputs")
    return b.ops("Split", [x], {"axis": place, "num_outputs": num_splits}, num_splits)


@_shapes.reads("SPLIT_V", "SplitVOptions", moves=True)
def split_v(b: Builder, x: Tensor, sizes: Tensor, axis: Tensor, *, num_splits: int) -> tuple[Tensor, ...]:
    place, parts = axis.integers[0] % x.rank, list(sizes.integers)
    if len(parts) != len(b.results):
        raise SourceError(f"{len(parts)} sizes and {len(b.results)} outputs")
    if FREE in parts:
        if x.dims[place] == FREE:
            raise Unsupported("one part takes the rest of an axis whose size is dynamic")
        parts[parts.index(FREE)] = x.dims[place] - sum(parts) - 1
    return b.ops("Split", [x, b.constant(parts)], {"axis": place}, len(parts))


@_shapes.reads("PAD")
def pad(b: Builder, x: Tensor, paddings: Tensor) -> Tensor:
    """Pads with a real zero: the zero point of a quantized tensor."""
    return _pad(b, x, paddings, b.scalar(0, x))


@_shapes.reads("PADV2")
def pad_v2(b: Builder, x: Tensor, paddings: Tensor, value: Tensor) -> Tensor:
    return _pad(b, x, paddings, b.op("Reshape", [value, b.constant([])]) if value.shape != () else value)


def _pad(b: Builder, x: Tensor, paddings: Tensor, value: Tensor) -> Tensor:
    if paddings.const is None:
        flat = b.op("Transpose", [b.cast(paddings, "int64")], {"perm": (1, 0)})
        return b.op("Pad", [x, b.op("Reshape", [flat, b.constant([-1])]), value])
    before, after = _pairs(paddings)
    moved = b.moved(x)
    if moved is None:
        return b.op("Pad", [x, b.constant((*before, *after)), value])
    source, perm = moved
    back = np.argsort(perm)
    places = (*(before[axis] for axis in back), *(after[axis] for axis in back))
    return b.transpose(b.op("Pad", [source, b.constant(places), value]), perm)


def _pairs(paddings: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes before and after each axis."""
    return paddings.integers[0::2], paddings.integers[1::2]


@_shapes.reads("MIRROR_PAD", "MirrorPadOptions", moves=True)
def mirror_pad(b: Builder, x: Tensor, paddings: Tensor, *, mode: int) -> Tensor:
    """ONNX reflects without the edge only; with it, each axis is gathered from mirrored places."""
    before, after = _pairs(paddings)
    if mode == _REFLECT:
        return b.op("Pad", [x, b.constant((*before, *after))], {"mode": "reflect"})
    for axis, (front, behind) in enumerate(zip(before, after, strict=True)):
        size = x.dims[axis]
        if not front and not behind:
            continue
        if size == FREE or max(front, behind) > size:
            raise Unsupported(f"symmetric padding of axis {axis}, whose size is {size}")
        places = np.pad(np.arange(size), (front, behind), mode="symmetric")
        x = b.op("Gather", [x, b.constant(places)], {"axis": axis})
    return x


@_shapes.reads("TILE", moves=True)
def tile(b: Builder, x: Tensor, repeats: Tensor) -> Tensor:
    return b.op("Tile", [x, b.cast(repeats, "int64")])


@_shapes.reads("BROADCAST_TO", moves=True)
def broadcast_to(b: Builder, x: Tensor, shape: Tensor) -> Tensor:
    return b.op("Expand", [x, b.cast(shape, "int64")])


@_shapes.reads("BROADCAST_ARGS")
def broadcast_args(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The shape of a sum of tensors of the two shapes."""
    zeros = [b.op("ConstantOfShape", [b.cast(each, "int64")], dtype="float32") for each in (x, y)]
    return b.op("Shape", [b.op("Add", zeros)], dtype="int64")


@_shapes.reads("SHAPE", "ShapeOptions", stored=True)
def shape(b: Builder, x: Tensor, *, out_type: int) -> Tensor:
    return b.op("Shape", [x], dtype="int64")


@_shapes.reads("RANK", stored=True)
def rank(b: Builder, x: Tensor) -> Tensor:
    return b.constant(np.asarray(x.rank, np.int64))


@_shapes.reads("FILL", moves=True)
def fill(b: Builder, dims: Tensor, value: Tensor) -> Tensor:
    return b.op("Expand", [value, b.cast(dims, "int64")])


@_shapes.reads("RANGE")
def arange(b: Builder, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return b.op("Range", [start, limit, delta])


@_shapes.reads("SPACE_TO_DEPTH", "SpaceToDepthOptions", moves=True)
def space_to_depth(b: Builder, x: Tensor, *, block_size: int) -> Tensor:
    return b.transpose(b.op("SpaceToDepth", [b.transpose(x, TO_NCHW)], {"blocksize": block_size}), TO_NHWC)


@_shapes.reads("DEPTH_TO_SPACE", "DepthToSpaceOptions", moves=True)
def depth_to_space(b: Builder, x: Tensor, *, block_size: int) -> Tensor:
    attributes: Attributes = {"blocksize": block_size, "mode": "DCR"}
    return b.transpose(b.op("DepthToSpace", [b.transpose(x, TO_NCHW)], attributes), TO_NHWC)


@_shapes.reads("SPACE_TO_BATCH_ND", moves=True)
def space_to_batch_nd(b: Builder, x: Tensor, block_shape: Tensor, paddings: Tensor) -> Tensor:
    """[N, h*b, …, C] → [b*N, h, …, C], blocks before the batch."""
    blocks, (before, after) = block_shape.integers, _pairs(paddings)
    count, inner = len(blocks), x.rank - 1 - len(blocks)
    sizes = [size + front + behind for size, front, behind in zip(x.dims[1:], before, after)]
    if FREE in x.dims[1:]:
        raise Unsupported("blocks of an axis whose size is dynamic")
    padded = b.op("Pad", [x, b.constant((0, *before, *(0,) * inner, 0, *after, *(0,) * inner)), b.scalar(0, x)])
    split = [each for size, block in zip(sizes, blocks, strict=True) for each in (size // block, block)]
    tail = x.dims[1 + count :]
    apart = b.op("Reshape", [padded, b.constant((FREE, *split, *tail))])
    outer, of_blocks = range(1, 2 * count, 2), range(2, 2 * count + 1, 2)
    swapped = b.op(
        "Transpose", [apart], {"perm": (*of_blocks, 0, *outer, *range(2 * count + 1, 2 * count + 1 + inner))}
    )
    return b.op("Reshape", [swapped, b.constant((FREE, *split[0::2], *tail))])


@_shapes.reads("BATCH_TO_SPACE_ND", moves=True)
def batch_to_space_nd(b: Builder, x: Tensor, block_shape: Tensor, crops: Tensor) -> Tensor:
    """The inverse of SPACE_TO_BATCH_ND; ``crops`` undo its padding."""
    blocks, (before, after) = block_shape.integers, _pairs(crops)
    count, tail = len(blocks), x.dims[1 + len(blocks) :]
    if FREE in x.dims[1:]:
        raise Unsupported("blocks of an axis whose size is dynamic")
    apart = b.op("Reshape", [x, b.constant((*blocks, FREE, *x.dims[1:]))])
    pairs = [each for axis in range(count) for each in (count + 1 + axis, axis)]
    swapped = b.op("Transpose", [apart], {"perm": (count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(tail)))})
    sizes = [size * block for size, block in zip(x.dims[1:], blocks)]
    whole = b.op("Reshape", [swapped, b.constant((FREE, *sizes, *tail))])
    ends = [size - behind for size, behind in zip(sizes, after, strict=True)]
    return b.op("Slice", [whole, b.constant(before), b.constant(ends), b.constant(range(1, count + 1))])


def _resize(b: Builder, x: Tensor, size: Tensor, attributes: dict[str, str]) -> Tensor:
    inputs = [b.transpose(x, TO_NCHW), None, None, b.cast(size, "int64")]
    return b.transpose(b.op("Resize", inputs, {**attributes, "axes": (2, 3)}), TO_NHWC)


def _places(align_corners: bool, half_pixel_centers: bool) -> str:
    return "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"


@_shapes.reads("RESIZE_BILINEAR", "ResizeBilinearOptions", moves=True)
def resize_bilinear(b: Builder, x: Tensor, size: Tensor, *, align_corners: bool, half_pixel_centers: bool) -> Tensor:
    places = _places(align_corners, half_pixel_centers)
    return _resize(b, x, size, {"mode": "linear", "coordinate_transformation_mode": places})


@_shapes.reads("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", moves=True)
def resize_nearest(b: Builder, x: Tensor, size: Tensor, *, align_corners: bool, half_pixel_centers: bool) -> Tensor:
    """TFLite floors ``(i + 0.5) * scale``, which is ``round_prefer_ceil`` of ONNX's coordinate."""
    places = _places(align_corners, half_pixel_centers)
    rounding = "floor" if places == "asymmetric" else "round_prefer_ceil"
    attributes = {"mode": "nearest", "coordinate_transformation_mode": places, "nearest_mode": rounding}
    return _resize(b, x, size, attributes)


shapes = _shapes | slices
