"""Reversed parts of rows whose axes ONNX's ReverseSequence does not name: it knows the first two alone.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

from convertkit.converters.tensorflow.compat import tf_op
from convertkit.converters.tensorflow.forms import INT64, Form


@tf_op("ReverseSequence")
class ReverseSequence:
    """Time and batch are moved to the front where they are not there, and back.

    Source: ONNX operators, ReverseSequence-10, ``time_axis`` and ``batch_axis``.
    """

    @classmethod
    def version_10(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        lengths, x = f.cast(node.input[1], INT64), node.input[0]
        time, batch = (node.get_attr_value(name, 0) for name in ("seq_dim", "batch_dim"))
        if {time, batch} == {0, 1}:
            f.end(f.op("ReverseSequence", x, lengths, time_axis=time, batch_axis=batch))
            return
        rank = len(f.shape())
        time, batch = time % rank, batch % rank
        order = [time, batch, *(axis for axis in range(rank) if axis not in (time, batch))]
        moved = f.op("Transpose", x, perm=order)
        turned = f.op("ReverseSequence", moved, lengths, time_axis=0, batch_axis=1)
        f.end(f.op("Transpose", turned, perm=[order.index(axis) for axis in range(rank)]))
