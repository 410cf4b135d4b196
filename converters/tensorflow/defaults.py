"""Placeholders with a default: inputs of the model, or the default that nothing else is given for.

Imports TensorFlow's graphs, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

WITH_DEFAULT = "PlaceholderWithDefault"


def without_defaults(definition: Any, inputs: Collection[str]) -> None:
    """Make a plain placeholder of each that is among ``inputs``, and hand on the default of every other, in place.

    tf2onnx takes no default that is computed.
    """
    given = {name.partition(":")[0] for name in inputs}
    for node in definition.node:
        if node.op != WITH_DEFAULT:
            continue
        if node.name in given:
            node.op = "Placeholder"
            node.ClearField("input")
        else:
            kind = node.attr["dtype"].type
            node.op = "Identity"
            node.ClearField("attr")
            node.attr["T"].type = kind
