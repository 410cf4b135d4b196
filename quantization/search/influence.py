"""How much the model's outputs depend on each output of a product, at every position of every sample.

Errors of the layers are weighed with the squares of these gradients: what a Relu cuts off, a channel that nothing reads
and a frame of silence need not be kept.  Outputs are looked at in random directions, since a model may have thousands.
Source: the Gauss-Newton approximation of a squared error at the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.quantization.graph.gradient import GRADIENT, SEED, with_gradients
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.sizes import measure_sizes, sizes
from convertkit.quantization.graph.units import is_float
from convertkit.quantization.graph.work import multiply_adds
from convertkit.quantization.search.measured import readings
from convertkit.stage import Feed

_BUDGET = 2e11
"""Multiply-adds that all gradients may cost."""
_PASSES = 4
"""What a gradient costs, in runs of the model."""
_DIRECTIONS = 8
"""At most, for each sample."""
_SHAPE = "shape_of/"


def influence(
    model: ir.Model,
    names: Sequence[str],
    feeds: Sequence[Feed],
    state: Mapping[str, Array],
    seed: int,
    most_directions: int = _DIRECTIONS,
) -> Iterator[Mapping[str, Array]]:
    """Squared gradients by the names of values, for each feed; without those that have none.

    The gradient's graph is written for the sizes of one sample: of samples in batches, and of models whose sizes
    depend on the data, none are known.

    Each is the mean over at most ``most_directions``, of large models over fewer: one is enough where many values or
    samples are summed up.
    """
    copy = model.clone()
    outputs = read_values(copy)
    if state or not outputs or not alike(copy, feeds):
        return ({} for _ in feeds)
    measure_sizes(copy, feeds[0], state)
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    shapes = {name: sizes(made[name]) for name in outputs}
    scales = _scales(model, shapes, feeds)
    if not scales:
        return ({} for _ in feeds)
    found = with_gradients(copy, outputs, [name for name in names if name in made])
    return _squared(copy, found, scales, feeds, most_directions, seed)


def _squared(
    model: ir.Model,
    names: Sequence[str],
    scales: Mapping[str, Array],
    feeds: Sequence[Feed],
    most_directions: int,
    seed: int,
) -> Iterator[dict[str, Array]]:
    if not names:
        yield from ({} for _ in feeds)
        return
    work = sum(map(multiply_adds, model.graph)) * len(feeds)
    directions = int(np.clip(_BUDGET / max(_PASSES * work, 1.0), 1, most_directions))
    random = np.random.default_rng(seed)
    asked = (
        {**feed, **{SEED + name: np.asarray(scale * random.choice((-1, 1), scale.shape), np.float32)
                    for name, scale in scales.items()}}
        for feed in feeds for _ in range(directions)
    )  # fmt: skip
    shapes = {name: _SHAPE + name for name in names}
    _tell_shapes(model, shapes)
    wanted = [*(GRADIENT + name for name in names), *shapes.values()]
    place = 0
    try:
        answers = run_all(open_session(model), wanted, asked, {})
        for place in range(len(feeds)):  # noqa: B007 - how far it went
            several = [next(answers) for _ in range(directions)]
            fit = [name for name in names if several[0][GRADIENT + name].shape == tuple(several[0][shapes[name]])]
            yield {name: _mean_square([each[GRADIENT + name] for each in several]) for name in fit}
    except ToolError:  # inner sizes differ from those of the first sample
        yield from ({} for _ in range(place, len(feeds)))


def _tell_shapes(model: ir.Model, names: Mapping[str, str]) -> None:
    """Let the shapes of values be outputs, by the names of both."""
    made = {str(value.name): value for node in model.graph for value in node.outputs}
    for name, told in names.items():
        node = ir.node("Shape", [made[name]], name=told)
        node.outputs[0].name, node.outputs[0].type = told, ir.TensorType(ir.DataType.INT64)
        model.graph.append(node)
        model.graph.outputs.append(node.outputs[0])


def _mean_square(gradients: Sequence[Array]) -> Array:
    """0 where there is none, as where something was divided by nothing."""
    total = sum(np.square(each) for each in gradients)
    return np.asarray(np.where(np.isfinite(total), total, 0.0) / len(gradients), np.float32)


def read_values(model: ir.Model) -> tuple[str, ...]:
    """The values that results are read from, in front of a softmax or sigmoid."""
    nodes = {node.name: node for node in model.graph}
    made = {str(value.name): value for node in model.graph for value in node.outputs}
    read = readings(model.graph)
    found = [nodes[each.node].inputs[each.place] if each.node else made.get(each.name) for each in read]
    names = dict.fromkeys(str(value.name) for value in found if value is not None and is_float(value))
    return tuple(name for name in names if name in made)


def alike(model: ir.Model, feeds: Sequence[Feed]) -> bool:
    """Whether every sample has the sizes that the graph's gradient is written for."""
    taken = [value for value in model.graph.inputs if value.name in feeds[0]]
    return all(feed[str(value.name)].shape == feeds[0][str(value.name)].shape for feed in feeds for value in taken)


def _scales(model: ir.Model, shapes: Mapping[str, tuple[int, ...]], feeds: Sequence[Feed]) -> dict[str, Array]:
    """Outputs of different size count alike: one over their deviation and the root of their number.

    Nothing where one has not the shape that the gradient is written for.
    """
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    copy.graph.outputs.extend(made[name] for name in shapes if not made[name].is_graph_output())
    answers = list(run_all(open_session(copy), list(shapes), feeds, {}))
    found = {}
    if any(answer[name].shape != shape for answer in answers for name, shape in shapes.items()):
        return {}
    for name, shape in shapes.items():
        values = np.stack([answer[name] for answer in answers]).astype(np.float64)
        values = np.where(np.isfinite(values), values, 0.0)  # masks have infinities
        size = max(float(values.std(axis=0).mean()), 1e-3 * float(np.abs(values).mean()), 1e-12)
        found[name] = np.full(shape, 1 / size / max(math.prod(shape), 1) ** 0.5, np.float32)
    return found
