"""If, Loop and Scan: subgraphs are computed as the model is, so a perturbed condition may take the other way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.values import UNIT, Tensor, Value

_SCAN_HAS_AXES_SINCE = 9


def _if(call: Call) -> Results:
    branch = "then_branch" if bool(call.array(0).reshape(-1)[0]) else "else_branch"
    return call.run_graph(call.graph(branch), ())


def _loop(call: Call) -> Results:
    """Source: ONNX operators, Loop: trip count and condition are both optional."""
    body = call.graph("body")
    trips, condition = call.optional(0), call.optional(1)
    most = None if trips is None else int(trips.reshape(-1)[0])
    goes_on = True if condition is None else bool(condition.reshape(-1)[0])
    carried: tuple[Value, ...] = call.inputs[2:]
    rows: list[tuple[Value, ...]] = []
    while goes_on and (most is None or len(rows) < most):
        number = Tensor(np.array(len(rows), np.int64), ir.DataType.INT64)
        ahead = Tensor(np.array(goes_on), ir.DataType.BOOL)
        verdict, *results = call.run_graph(body, (number, ahead, *carried))
        assert isinstance(verdict, Tensor), "the condition is a tensor"
        goes_on = bool(verdict.array.reshape(-1)[0])
        carried = tuple(results[: len(carried)])
        rows.append(tuple(results[len(carried) :]))
    outputs = body.outputs[1 + len(carried) :]
    return (*carried, *(_stacked([row[i] for row in rows], output, 0) for i, output in enumerate(outputs)))


def _scan(call: Call) -> Results:
    """Source: ONNX operators, Scan-9 and later."""
    if call.opset < _SCAN_HAS_AXES_SINCE:
        raise Unsupported("Scan of opset 8 runs over a batch axis", subject=call.title)
    body, count = call.graph("body"), call.whole("num_scan_inputs")
    states, scanned = call.inputs[: len(call.inputs) - count], call.inputs[len(call.inputs) - count :]
    sequences = [value for value in scanned if isinstance(value, Tensor)]
    axes = call.wholes("scan_input_axes") or (0,) * count
    backward = call.wholes("scan_input_directions") or (0,) * count
    length = sequences[0].array.shape[axes[0]]
    rows: list[tuple[Value, ...]] = []
    for step in range(length):
        places = [length - 1 - step if back else step for back in backward]
        parts = [_part(*each) for each in zip(sequences, axes, places, strict=True)]
        results = call.run_graph(body, (*states, *parts))
        states = tuple(results[: len(states)])
        rows.append(tuple(results[len(states) :]))
    outputs = body.outputs[len(states) :]
    to = call.wholes("scan_output_axes") or (0,) * len(outputs)
    reverse = call.wholes("scan_output_directions") or (0,) * len(outputs)
    made = []
    for place, output in enumerate(outputs):
        column = [row[place] for row in rows]
        made.append(_stacked(column[::-1] if reverse[place] else column, output, to[place]))
    return (*states, *made)


def _part(sequence: Tensor, axis: int, place: int) -> Tensor:
    return Tensor(np.take(sequence.array, place, axis), sequence.dtype)


def _stacked(rows: Sequence[Value], output: ir.Value, axis: int) -> Tensor:
    """All iterations' results as one tensor; without an iteration an empty one of the declared shape."""
    tensors = [row for row in rows if isinstance(row, Tensor)]
    if tensors:
        return Tensor(np.stack([each.array for each in tensors], axis), tensors[0].dtype)
    if output.shape is None or output.dtype is None:
        raise Unsupported(f"no iteration, and nothing tells the shape of {output.name}")
    sizes = [size if isinstance(size, int) else 0 for size in output.shape]
    sizes.insert(axis, 0)
    kind: type | np.dtype = np.float64 if output.dtype in UNIT else output.dtype.numpy()
    empty: Array = np.zeros(sizes, kind)
    return Tensor(empty, output.dtype)


HANDLERS: Mapping[str, Handler] = {"If": _if, "Loop": _loop, "Scan": _scan}
