"""Whole numbers and flags that become floats, for ``--full-integer``: a table of all that calibration saw.

before:  Cast (whole numbers, to float)
after:   Gather (table, Clip (whole numbers - least)), a look-up whose rows become integers

What lies beyond the least and greatest number is cut off there, as every value beyond its range is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, inserted, is_float32, replaced
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.observe import observe
from convertkit.stage import Feed

_ROWS: Final = 4096
"""The longest table; one step of int8 is 16 numbers there."""
_WHOLE: Final = frozenset({ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64})


def whole_numbers_as_tables(
    model: ir.Model, profile: QuantProfile, feeds: Iterable[Feed], state: Mapping[str, Array]
) -> None:
    """Rewrite every such Cast, in place, where ``profile`` looks up integers; 0 and 1 are always in the table."""
    found = [node for node in model.graph if _is_met(node)]
    if profile.rule(("Gather",)) is None or not profile.integer_rows or not found:
        return
    measured = observe(model, [str(node.outputs[0].name) for node in found], feeds, state)
    for node in found:
        seen = measured[str(node.outputs[0].name)]
        low, high = min(seen.low, 0), max(seen.high, 1)
        if high - low < _ROWS:
            _look_up(node, int(low), int(high))


def _is_met(node: ir.Node) -> bool:
    """Whether a Cast of numbers that are computed or given makes float32."""
    source = node.inputs[0] if node.op_type == "Cast" and not node.domain else None
    if source is None or source.dtype not in _WHOLE or not is_float32(node.outputs[0]):
        return False
    return source.const_value is None and not _tells_of_floats(source) and not _is_of_sizes(source)


def _tells_of_floats(flags: ir.Value) -> bool:
    """Whether flags compare floats: what is computed from both may be a function of one number, which is a table."""
    node = flags.producer()
    read = () if node is None or flags.dtype != ir.DataType.BOOL else node.inputs
    return any(value is not None and (is_float32(value) or _tells_of_floats(value)) for value in read)


def _is_of_sizes(value: ir.Value) -> bool:
    """Whether a number is computed from sizes: what is made of it may be a size, which is never rounded."""
    asked, seen = [value], {value}
    while asked:
        node = asked.pop().producer()
        if node is None:
            continue
        if node.op_type in ("Shape", "Size") and not node.domain:
            return True
        more = {each for each in node.inputs if each is not None and each not in seen}
        asked += more
        seen |= more
    return False


def _look_up(node: ir.Node, low: int, high: int) -> None:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    assert source is not None
    assert source.dtype is not None
    assert isinstance(graph, ir.Graph)
    if source.dtype == ir.DataType.BOOL:
        places = inserted(node, "Cast", [source], source, {"to": int(ir.DataType.INT32)}).outputs[0]
        places.type = ir.TensorType(ir.DataType.INT32)
    else:
        dtype = source.dtype.numpy()
        least = add_constant(graph, f"{source.name}_least", np.array(low, dtype))
        greatest = add_constant(graph, f"{source.name}_greatest", np.array(high, dtype))
        above = inserted(node, "Max", [source, least], source).outputs[0]
        within = inserted(node, "Min", [above, greatest], source).outputs[0]
        places = inserted(node, "Sub", [within, least], source).outputs[0] if low else within
    table = add_constant(graph, f"{result.name}_numbers", np.arange(low, high + 1, dtype=np.float32))
    replaced(node, "Gather", [table, places])
