"""Running the float model over calibration feeds and measuring its tensors on the way.

The extremes of every tensor are reduced inside the graph, and of its values an evenly strided part
leaves it, so that memory and time hardly depend on what is observed.  State goes from call to call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx_ir as ir

from convertkit.artifact import NEXT_STATE_PREFIX, Array
from convertkit.errors import FeedError
from convertkit.quantization.histogram import Statistics
from convertkit.quantization.replay import open_session, run_all
from convertkit.quantization.resume import EVERY, Checkpoint
from convertkit.quantization.units import clamp_limits, is_constant
from convertkit.stage import Feed

_KEPT = 2048
"""Values of each tensor and sample that go into its histogram; the extremes are exact in any case."""
_AT_ONCE = 16
"""Samples whose values are counted together: counting has a fixed cost."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Outputs added for one tensor: least value, greatest value, some of its values."""

    name: str
    low: str
    high: str
    values: str


def observe(
    model: ir.Model,
    names: Sequence[str],
    feeds: Iterable[Feed],
    initial_state: Mapping[str, Array],
    checkpoint: Checkpoint | None = None,
) -> dict[str, Statistics]:
    """Statistics of the named values of the main graph over all feeds.  ``model`` is not changed.

    With a ``checkpoint`` the work goes on where a killed run left it, and leaves states itself; not for
    models with state, whose samples depend on the ones before.
    """
    instrumented, probes = _instrumented(model, names)
    session = open_session(instrumented)
    wanted = [output for probe in probes for output in (probe.low, probe.high, probe.values)]
    kept = None if initial_state else checkpoint
    done, found = kept.load(names) if kept else (0, {name: Statistics() for name in names})
    waiting: dict[str, list[Array]] = {name: [] for name in names}
    answers = run_all(session, wanted, islice(feeds, done, None), initial_state)
    for index, answer in enumerate(answers, start=done + 1):
        _take(answer, probes, found, waiting)
        if index % _AT_ONCE == 0:
            _count(found, waiting)
        if kept and index % EVERY == 0:
            kept.save(index, found)
    _count(found, waiting)
    return found


def _take(
    answer: Mapping[str, Array],
    probes: Sequence[Probe],
    found: Mapping[str, Statistics],
    waiting: Mapping[str, list[Array]],
) -> None:
    for probe in probes:
        values = answer[probe.values]
        if values.size == 0:
            continue
        low, high = float(answer[probe.low]), float(answer[probe.high])
        if not np.isfinite([low, high]).all() or not np.isfinite(values).all():
            fault = "the data is outside the model's domain"
            raise FeedError(f"calibration drives tensor {probe.name!r} to NaN or infinity: {fault}")
        found[probe.name].extremes(low, high)
        waiting[probe.name].append(values)


def _count(found: Mapping[str, Statistics], waiting: Mapping[str, list[Array]]) -> None:
    for name, values in waiting.items():
        if values:
            found[name].histogram.add(np.concatenate(values))
            values.clear()


def _instrumented(model: ir.Model, names: Sequence[str]) -> tuple[ir.Model, tuple[Probe, ...]]:
    copy = model.clone()
    values = {value.name: value for value in copy.graph.inputs}
    values.update({value.name: value for node in copy.graph for value in node.outputs})
    copy.graph.outputs[:] = [v for v in copy.graph.outputs if str(v.name).startswith(NEXT_STATE_PREFIX)]
    probes = tuple(_probe(copy.graph, values[name], index) for index, name in enumerate(names))
    return copy, probes


def _probe(graph: ir.Graph, value: ir.Value, index: int) -> Probe:
    """Add the measuring nodes of one value behind the last node of the graph."""
    probe = Probe(str(value.name), f"__low_{index}", f"__high_{index}", f"__values_{index}")
    sizes = _sizes(value)
    if len(sizes) == 4 and _is_never_negative(value):
        _probe_map(graph, value, sizes, probe, index)
        return probe
    flat = _flat(graph, value, f"__all_{index}")
    graph.outputs.append(_reduced(graph, "ReduceMin", flat, probe.low))
    graph.outputs.append(_reduced(graph, "ReduceMax", flat, probe.high))
    step = max(1, math.prod(sizes or (1,)) // _KEPT) | 1  # odd: an even stride would see only some channels
    numbers = [_number(graph, number) for number in (0, np.iinfo(np.int64).max, 0, step)]
    graph.outputs.append(_add(graph, "Slice", [flat, *numbers], probe.values, (), (None,)))
    return probe


def _probe_map(graph: ir.Graph, value: ir.Value, sizes: tuple[int, ...], probe: Probe, index: int) -> None:
    """A feature map behind a Relu: by pooling, which ONNX Runtime does in the layout of its convolutions.

    Any least value will do, because zero is in every range; the greatest is exact.
    """
    step = math.isqrt(math.prod(sizes) // _KEPT) | 1
    window = [ir.AttrInt64s("kernel_shape", [1, 1]), ir.AttrInt64s("strides", [step, step])]
    grid = _add(graph, "MaxPool", [value], f"__grid_{index}", window, (None,) * 4)
    tops = _add(graph, "GlobalMaxPool", [value], f"__tops_{index}", (), (None, None, 1, 1))
    values = _flat(graph, grid, probe.values)
    graph.outputs.append(_reduced(graph, "ReduceMin", values, probe.low))
    graph.outputs.append(_reduced(graph, "ReduceMax", tops, probe.high))
    graph.outputs.append(values)


def _is_never_negative(value: ir.Value) -> bool:
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Relu", "Clip"):
        return False
    limits = [limit for limit in node.inputs[1:] if limit is not None]
    return all(map(is_constant, limits)) and clamp_limits(node)[0] >= 0


def _flat(graph: ir.Graph, value: ir.Value, name: str) -> ir.Value:
    return _add(graph, "Reshape", [value, _number(graph, -1)], name, (), (None,))


def _reduced(graph: ir.Graph, op: str, value: ir.Value, name: str) -> ir.Value:
    return _add(graph, op, [value], name, [ir.AttrInt64("keepdims", 0)], ())


def _add(
    graph: ir.Graph,
    op: str,
    inputs: Sequence[ir.Value],
    name: str,
    attributes: Sequence[ir.Attr] = (),
    shape: tuple[int | None, ...] | None = None,
) -> ir.Value:
    node = ir.Node("", op, inputs, attributes, num_outputs=1, name=name)
    output = node.outputs[0]
    output.name, output.dtype = name, ir.DataType.FLOAT
    output.shape = None if shape is None else ir.Shape(shape)
    graph.append(node)
    return output


def _number(graph: ir.Graph, number: int) -> ir.Value:
    """An initializer of one number; probes share them."""
    name = f"__number_{number}"
    if name not in graph.initializers:
        value = ir.Value(name=name, const_value=ir.Tensor(np.array([number], np.int64), name=name))
        value.dtype, value.shape = ir.DataType.INT64, ir.Shape([1])
        graph.register_initializer(value)
    return graph.initializers[name]


def _sizes(value: ir.Value) -> tuple[int, ...]:
    """The static shape; empty where there is none."""
    sizes = tuple(dim for dim in value.shape or () if isinstance(dim, int))
    return sizes if value.shape is not None and len(sizes) == len(value.shape) else ()
