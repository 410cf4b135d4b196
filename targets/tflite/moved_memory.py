"""Values that XNNPACK would go on reading from where they were before LiteRT moved its memory.

Where a size is known only while the model runs, LiteRT allocates what follows in the middle of the first call, and may
move all values for that.  Where XNNPACK begins its part of the graph with a dense layer, a convolution or a reshape, it
then reads the old place from the second call on, and computes other numbers; not where it begins with an operator of
single elements.  So in such files the others read ``x · 1``, which is ``x`` exactly.

Where its part ends with a reshape, it goes on writing to the old place, and whoever reads the new one finds what lay
there.  So what others read is the reshaped value times 1.

Measured in LiteRT 2.3.0 on x86-64, 160 fresh interpreters of one file, three calls each: a dense layer wrong in up to
62, a convolution behind a reshape in 41, none with the factors.  Where a loop grows a value, a dense layer in front of
it was wrong in 4 of 40 (four calls each), none with the factors.  Layers of integers were right in all of 1200.
Reshapes at the end, in a mixture of experts (FlexOlmo), 68 files that differ in one more output: the second call wrong
in 54, with factors behind the reshapes in none of 69.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import numpy as np

from convertkit.targets.tflite.builder.core import NONE
from convertkit.targets.tflite.graph import Operation, Program, Subgraph
from convertkit.targets.tflite.tensor import Tensor

_ELEMENTWISE = frozenset({"ADD", "SUB", "MUL", "RELU", "RELU6", "TANH", "LOGISTIC"})
_PRODUCTS = frozenset({"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})
_GUARDED = _PRODUCTS | {
    "AVERAGE_POOL_2D", "BATCH_MATMUL", "CONCATENATION", "DEPTH_TO_SPACE", "EXPAND_DIMS", "MAX_POOL_2D", "MEAN", "PAD",
    "RESHAPE", "RESIZE_BILINEAR", "SLICE", "SOFTMAX", "SPACE_TO_DEPTH", "SPLIT", "SQUEEZE", "STRIDED_SLICE", "SUM",
    "TRANSPOSE",
}  # fmt: skip
"""What XNNPACK runs, and may set up with the address of what it reads."""
_INSIDE = _ELEMENTWISE | _PRODUCTS
"""What makes a value inside of XNNPACK's part, so that who reads it is not the first."""
_RESHAPES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
"""What XNNPACK may do without moving anything, so that it does not notice another place of the result."""
_SIZES: Mapping[str, tuple[int, ...]] = {
    "RANGE": (0, 1, 2), "FILL": (0,), "TILE": (1,), "BROADCAST_TO": (1,), "RESHAPE": (1,), "SLICE": (1, 2),
    "STRIDED_SLICE": (1, 2, 3), "PAD": (1,), "PADV2": (1,), "TOPK_V2": (1,), "ONE_HOT": (1,), "SCATTER_ND": (2,),
    "RESIZE_BILINEAR": (1,), "RESIZE_NEAREST_NEIGHBOR": (1,), "TRANSPOSE_CONV": (0,),
}  # fmt: skip
"""Inputs that decide about the size of what the operator makes."""
_OF_VALUES = frozenset({"WHERE", "UNIQUE"})
_OF_FREE_SIZES = frozenset({"SLICE", "TOPK_V2"})
"""Their results LiteRT allocates while it runs, if an input has a dynamic size, although all sizes are known before."""


def read_behind_factors(program: Program) -> None:
    """Put factors of 1 where XNNPACK may begin, in place, if the size of any value is computed by the model."""
    if program.sized_late or any(_is_sized_late(each) for part in program.subgraphs for each in part.operations):
        for subgraph in program.subgraphs:
            subgraph.operations = list(_with_factors_behind_reshapes(subgraph))
            subgraph.operations = list(_with_factors(subgraph))


def _is_sized_late(operation: Operation) -> bool:
    given = [operation.inputs[place] for place in _SIZES.get(operation.code, ()) if place < len(operation.inputs)]
    if operation.code in _OF_FREE_SIZES and operation.inputs[0] is not None and not operation.inputs[0].is_static:
        return True
    return operation.code in _OF_VALUES or any(tensor is not None and tensor.constant is None for tensor in given)


def _with_factors_behind_reshapes(subgraph: Subgraph) -> Iterator[Operation]:
    """before:  x → RESHAPE → y, read by an operator that XNNPACK does not run, or an output
    after:   x → RESHAPE → moved → MUL 1 → y
    """
    leaves = set(subgraph.outputs)
    for reader in subgraph.operations:
        leaves.update(x for x in reader.inputs if x is not None and not _reads_beside(reader, x))
    for operation in subgraph.operations:
        y = operation.outputs[0] if operation.outputs else None
        if not _is_inside(operation, _RESHAPES) or y is None or y.dtype != "float32" or y not in leaves:
            yield operation
            continue
        moved = Tensor(f"{y.name}_moved", y.shape, y.dtype)
        operation.outputs = (moved,)
        yield operation
        yield _times_one(moved, y, operation.origin)


def _reads_beside(reader: Operation, x: Tensor) -> bool:
    """Whether XNNPACK runs ``reader`` in the part in which it makes ``x``, or ``reader`` only asks how large x is."""
    if reader.code in _GUARDED or reader.code == "SHAPE":  # the guarded ones read x · 1
        return True
    return reader.code in _ELEMENTWISE and all(
        each is x or each is None or each.constant is not None for each in reader.inputs
    )


def _is_inside(operation: Operation, codes: AbstractSet[str]) -> bool:
    """Whether XNNPACK may run an operator of these; it reshapes to constant sizes alone."""
    sizes = operation.inputs[1] if operation.code == "RESHAPE" and len(operation.inputs) > 1 else None
    return operation.code in codes and (sizes is None or sizes.constant is not None)


def _makes_weights(operation: Operation) -> bool:
    """Whether this makes floats of stored integers: XNNPACK does it once, into memory of its own, and packs them."""
    x = operation.inputs[0] if operation.inputs else None
    return operation.code == "DEQUANTIZE" and x is not None and x.constant is not None


def _times_one(x: Tensor, y: Tensor, origin: str) -> Operation:
    one = Tensor(f"{x.name}_one", (), x.dtype, np.array(1, np.float32))
    return Operation("MUL", (x, one), (y,), {"fused_activation_function": NONE}, origin)


def _with_factors(subgraph: Subgraph) -> Iterator[Operation]:
    made_by = {result: operation.code for operation in subgraph.operations for result in operation.outputs}
    stored = {result for operation in subgraph.operations if _makes_weights(operation) for result in operation.outputs}
    factors: dict[Tensor, Tensor] = {}
    for operation in subgraph.operations:
        for x in operation.inputs if _is_inside(operation, _GUARDED) else ():
            if x is None or x.dtype != "float32" or x.constant is not None or x in stored:
                continue
            if made_by.get(x) in _INSIDE or x in factors:
                continue
            factors[x] = Tensor(f"{x.name}_here", x.shape, x.dtype)
            yield _times_one(x, factors[x], operation.origin)
        if _is_inside(operation, _GUARDED):
            operation.inputs = tuple(x if x is None else factors.get(x, x) for x in operation.inputs)
        yield operation
