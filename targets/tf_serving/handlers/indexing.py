"""Operators that choose elements, or put them at places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.targets.tf_serving.call import Call, Handler


def gather(call: Call) -> Any:
    return call.tf.gather(call[0], call[1], axis=call.options["axis"], batch_dims=call.options["batchDims"])


def gather_nd(call: Call) -> Any:
    return call.tf.gather_nd(call[0], call[1])


def scatter_nd(call: Call) -> Any:
    """Indices, updates, sizes; what falls on one place is added up."""
    return call.tf.scatter_nd(call[0], call[1], call[2])


def slice_of(call: Call) -> Any:
    return call.tf.slice(call[0], call[1], call[2])


def strided_slice(call: Call) -> Any:
    """With ``offset`` an end is counted from its begin."""
    options, end = call.options, call[2]
    if options.get("offset"):
        end = call[1] + end
    return call.tf.strided_slice(
        call[0], call[1], end, call[3],
        begin_mask=options["beginMask"], end_mask=options["endMask"], ellipsis_mask=options["ellipsisMask"],
        new_axis_mask=options["newAxisMask"], shrink_axis_mask=options["shrinkAxisMask"],
    )  # fmt: skip


def one_hot(call: Call) -> Any:
    return call.tf.one_hot(call[0], call[1], call[2], call[3], axis=call.options["axis"])


def where(call: Call) -> Any:
    return call.tf.where(call[0])


def dynamic_update_slice(call: Call) -> Any:
    """``operand`` with ``update`` laid over it; a begin from which it would reach over the end is moved back."""
    tf, operand, update = call.tf, call[0], call[1]
    sizes = tf.shape(operand, out_type="int64")
    begin = tf.clip_by_value(tf.cast(call[2], "int64"), 0, sizes - tf.shape(update, out_type="int64"))
    ranges = [tf.range(tf.shape(update, out_type="int64")[axis]) + begin[axis] for axis in range(len(operand.shape))]
    places = tf.stack(tf.meshgrid(*ranges, indexing="ij"), axis=-1)
    return tf.tensor_scatter_nd_update(operand, places, update)


INDEXING: Mapping[str, Handler] = {
    "GATHER": gather, "GATHER_ND": gather_nd, "SCATTER_ND": scatter_nd, "SLICE": slice_of,
    "STRIDED_SLICE": strided_slice, "ONE_HOT": one_hot, "WHERE": where, "DYNAMIC_UPDATE_SLICE": dynamic_update_slice,
}  # fmt: skip
