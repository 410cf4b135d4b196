"""Short-time Fourier transforms as the source has them: products of each frame with sines and cosines.

The canonical form takes the mean of each block or frame away first (:data:`.fourier.BY_BLOCKS`, ``LESS_MEAN``), which
is the same number with smaller roundings than those of a source.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer, inserted, producer, replaced
from convertkit.onnx.fourier import BY_BLOCKS, LESS_MEAN


def write_frames_plainly(model: ir.Model) -> None:
    """One convolution or product of the samples for that of what they differ from means by, in place."""
    for node in [node for node in model.graph.all_nodes() if BY_BLOCKS in node.metadata_props]:
        rows, weights = _rows(node), array_of(node.inputs[1])
        block = rows.shape[-1] if rows is not None and rows.shape else None
        if rows is None or weights is None or not isinstance(block, int) or weights.ndim != 3:
            continue
        shape = initializer(node, np.array([0, 1, -1], np.int64), f"{node.name}/samples")
        samples = inserted(node, "Reshape", [rows, shape], rows).outputs[0]
        waves = weights[:, :block].transpose(0, 2, 1).reshape(len(weights), 1, -1)
        kernels = initializer(node, waves, f"{node.name}/waves")
        others = [each for each in node.inputs[2:] if each is not None]
        steps = [block * each for each in node.attributes.get_ints("strides", ())]
        replaced(node, "Conv", [samples, kernels, *others], {"strides": steps})
    for node in [node for node in model.graph.all_nodes() if LESS_MEAN in node.metadata_props]:
        product = producer(node.inputs[0], "MatMul")
        rest = None if product is None else producer(product.inputs[0], "Sub")
        if product is not None and rest is not None and rest.inputs[0] is not None:
            product.replace_input_with(0, rest.inputs[0])
            replaced(node, "Identity", [product.outputs[0]])


def _rows(node: ir.Node) -> ir.Value | None:
    """The samples in blocks, before their means are taken away."""
    moved = producer(node.inputs[0], "Transpose")
    joined = None if moved is None else producer(moved.inputs[0], "Concat")
    rest = None if joined is None else producer(joined.inputs[0], "Sub")
    return None if rest is None else rest.inputs[0]
