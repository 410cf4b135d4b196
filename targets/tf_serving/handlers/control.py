"""Operators that run other graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.targets.tf_serving.call import Call, Handler


def choice(call: Call) -> Any:
    """The condition, then what both graphs are given."""
    given = list(call.inputs[1:])
    then, other = (call.graphs(call.options[name]) for name in ("thenSubgraphIndex", "elseSubgraphIndex"))
    return tuple(call.tf.cond(call.tf.reshape(call[0], []), lambda: then(*given), lambda: other(*given)))


def loop(call: Call) -> Any:
    """As long as the one graph says so, the other one makes the next values of the last; sizes may change."""
    tf = call.tf
    condition = call.graphs(call.options["condSubgraphIndex"])
    body = call.graphs(call.options["bodySubgraphIndex"])
    kept = [tf.TensorShape([None if size < 0 else size for size in each.shape]) for each in call.outputs]
    given = [tf.convert_to_tensor(each) for each in call.inputs]
    for value, shape in zip(given, kept, strict=True):
        shape.assert_is_compatible_with(value.shape)
    return tuple(
        tf.while_loop(
            lambda *values: tf.reshape(condition(*values)[0], []),
            lambda *values: [_shaped(value, shape) for value, shape in zip(body(*values), kept, strict=True)],
            given,
            shape_invariants=kept,
        )
    )


def _shaped(value: Any, shape: Any) -> Any:
    value.set_shape(shape)
    return value


CONTROL: Mapping[str, Handler] = {"IF": choice, "WHILE": loop}
