"""Operators that move data, or make it from sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.targets.tf_serving.call import Call, Handler


def reshape(call: Call) -> Any:
    sizes = call[1] if call[1] is not None else [int(each) for each in call.options["newShape"]]
    return call.tf.reshape(call[0], sizes)


def transpose(call: Call) -> Any:
    return call.tf.transpose(call[0], call[1])


def squeeze(call: Call) -> Any:
    axes = call.options["squeezeDims"]
    return call.tf.squeeze(call[0], [int(axis) for axis in axes] if axes is not None and len(axes) else None)


def expand_dims(call: Call) -> Any:
    return call.tf.expand_dims(call[0], int(call.constant(1).reshape(())))


def concatenation(call: Call) -> Any:
    return call.activated(call.tf.concat(list(call.inputs), call.options["axis"]))


def pack(call: Call) -> Any:
    return call.tf.stack(list(call.inputs), call.options["axis"])


def unpack(call: Call) -> Any:
    return tuple(call.tf.unstack(call[0], call.options["num"], call.options["axis"]))


def split(call: Call) -> Any:
    return tuple(call.tf.split(call[1], len(call.outputs), int(call.constant(0).reshape(()))))


def split_v(call: Call) -> Any:
    sizes = [int(each) for each in call.constant(1).reshape(-1)]
    return tuple(call.tf.split(call[0], sizes, int(call.constant(2).reshape(()))))


def pad(call: Call) -> Any:
    """PADV2 says what with, PAD pads with 0."""
    value = call[2] if call[2] is not None else call.tf.zeros([], call[0].dtype)
    return call.tf.raw_ops.PadV2(input=call[0], paddings=call[1], constant_values=value)


def mirror_pad(call: Call) -> Any:
    return call.tf.pad(call[0], call[1], ("REFLECT", "SYMMETRIC")[call.options["mode"]])


def tile(call: Call) -> Any:
    return call.tf.tile(call[0], call[1])


def fill(call: Call) -> Any:
    return call.tf.fill(call[0], call[1])


def span(call: Call) -> Any:
    return call.tf.range(call[0], call[1], call[2])


def shape(call: Call) -> Any:
    return call.tf.shape(call[0], out_type=call.outputs[0].dtype)


def broadcast_to(call: Call) -> Any:
    return call.tf.broadcast_to(call[0], call[1])


def broadcast_args(call: Call) -> Any:
    return call.tf.broadcast_dynamic_shape(call[0], call[1])


def reverse(call: Call) -> Any:
    return call.tf.reverse(call[0], call[1])


def reverse_sequence(call: Call) -> Any:
    return call.tf.reverse_sequence(
        call[0], call[1], seq_axis=call.options["seqDim"], batch_axis=call.options["batchDim"]
    )


def depth_to_space(call: Call) -> Any:
    return call.tf.nn.depth_to_space(call[0], call.options["blockSize"])


def space_to_depth(call: Call) -> Any:
    return call.tf.nn.space_to_depth(call[0], call.options["blockSize"])


MOVES: Mapping[str, Handler] = {
    "RESHAPE": reshape, "TRANSPOSE": transpose, "SQUEEZE": squeeze, "EXPAND_DIMS": expand_dims,
    "CONCATENATION": concatenation, "PACK": pack, "UNPACK": unpack, "SPLIT": split, "SPLIT_V": split_v, "PAD": pad,
    "PADV2": pad, "MIRROR_PAD": mirror_pad, "TILE": tile, "FILL": fill, "RANGE": span, "SHAPE": shape,
    "BROADCAST_TO": broadcast_to, "BROADCAST_ARGS": broadcast_args, "REVERSE_V2": reverse,
    "REVERSE_SEQUENCE": reverse_sequence, "DEPTH_TO_SPACE": depth_to_space, "SPACE_TO_DEPTH": space_to_depth,
}  # fmt: skip
