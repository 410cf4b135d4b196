"""DepthToSpace and SpaceToDepth over channels-last images."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.indexing import static_shape
from convertkit.targets.tflite.handlers.reductions import known_size
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

blocks = Registry()


@blocks.lowers_custom("DepthToSpace", domain=NHWC)
def depth_to_space(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """The builtin reads blocks before channels (DCR); CRD has channels first."""
    if mode == "DCR":
        return b.depth_to_space(x, block_size=blocksize)
    if mode != "CRD":
        raise Unsupported(f"mode {mode}")
    c = known_size(x, 3, "DepthToSpace with mode CRD")
    if DYNAMIC in x.shape[1:3]:  # no shape for a RESHAPE: the channels change places, then the builtin reads them
        return b.depth_to_space(b.gather(x, _blocks_first(b, c, blocksize), axis=3), block_size=blocksize)
    n, h, w = x.shape[:3]
    rows = b.reshape(x, (DYNAMIC if n == DYNAMIC else n * h, w, c // blocksize**2, blocksize, blocksize))
    moved = b.transpose(rows, (0, 3, 1, 4, 2))
    return b.reshape(moved, (n, h * blocksize, w * blocksize, c // blocksize**2))


def _blocks_first(b: Builder, channels: int, blocksize: int) -> Tensor:
    """Where DCR's channels lie in CRD: it counts blocks first, CRD channels first."""
    within = blocksize**2
    return b.ints([place for block in range(within) for place in range(block, channels, within)])


@blocks.lowers_custom("SpaceToDepth", domain=NHWC)
def space_to_depth(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """The builtin writes blocks before channels (DCR); CRD has channels first."""
    if mode == "DCR":
        return b.space_to_depth(x, block_size=blocksize)
    if mode != "CRD":
        raise Unsupported(f"mode {mode}")
    n, h, w, c = static_shape(x, "SpaceToDepth with mode CRD", but_batch=True)
    rows = b.reshape(x, (DYNAMIC if n == DYNAMIC else n * h // blocksize, blocksize, w // blocksize, blocksize, c))
    moved = b.transpose(rows, (0, 2, 4, 1, 3))
    return b.reshape(moved, (n, h // blocksize, w // blocksize, c * blocksize**2))
