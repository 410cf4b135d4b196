"""DepthToSpace and SpaceToDepth over channels-last images."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.indexing import static_shape
from convertkit.targets.tflite.marks import NHWC
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

blocks = Registry()


@blocks.lowers_custom("DepthToSpace", domain=NHWC)
def depth_to_space(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """The builtin reads blocks before channels (DCR); CRD has channels first."""
    if mode == "DCR":
        return b.depth_to_space(x, block_size=blocksize)
    if mode != "CRD":
        raise Unsupported(f"mode {mode}")
    n = x.shape[0]
    h, w, c = static_shape(x, "DepthToSpace with mode CRD", but_batch=True)[1:]
    rows = b.reshape(x, (DYNAMIC if n == DYNAMIC else n * h, w, c // blocksize**2, blocksize, blocksize))
    moved = b.transpose(rows, (0, 3, 1, 4, 2))
    return b.reshape(moved, (n, h * blocksize, w * blocksize, c // blocksize**2))


@blocks.lowers_custom("SpaceToDepth", domain=NHWC)
def space_to_depth(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """The builtin writes blocks before channels (DCR); CRD has channels first."""
    if mode == "DCR":
        return b.space_to_depth(x, block_size=blocksize)
    if mode != "CRD":
        raise Unsupported(f"mode {mode}")
    n = x.shape[0]
    h, w, c = static_shape(x, "SpaceToDepth with mode CRD", but_batch=True)[1:]
    rows = b.reshape(x, (DYNAMIC if n == DYNAMIC else n * h // blocksize, blocksize, w // blocksize, blocksize, c))
    moved = b.transpose(rows, (0, 2, 4, 1, 3))
    return b.reshape(moved, (n, h // blocksize, w // blocksize, c * blocksize**2))
