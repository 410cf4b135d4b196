"""Scales moved between layers, so that channels which share one range fill it: the numbers stay the same.

Where a layer's output reaches only matrix products, through operators that commute with positive
factors, channel ``c`` may be divided by ``d[c]`` where it is made and multiplied back in the weights that
read it.  Between two layers this is cross-layer equalization (arXiv:1906.04721), behind a
normalization SmoothQuant (arXiv:2211.10438).  A Clip with an upper limit does not commute and is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.graph.units import constant
from convertkit.quantization.weights.integers import along
from convertkit.quantization.weights.sites import Site, channel_axis, input_of
from convertkit.stage import Feed

_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""How much of the spread of the activations moves into the weights: the alpha of SmoothQuant."""
_STEPS = 255.0
_WEIGHT_STEPS = 127.0
_LEAST_GAIN = 0.5
"""A site is worth it where the expected noise falls below this share: smaller gains are lost to clipped ranges."""
_WIDEST = 2.0**12
"""Largest factor between two channels, and least share of the loudest channel that counts as used."""


@dataclass(frozen=True, slots=True)
class Channels:
    """What calibration saw of each channel: least and greatest value, mean square."""

    low: Array
    high: Array
    square: Array


def measure(
    model: ir.Model, sites: Sequence[Site], feeds: Iterable[Feed], state: Mapping[str, Array]
) -> list[Channels]:
    """Channels of each site, by running the float model.  ``model`` is not changed."""
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    read = [dict.fromkeys(input_of(node, 0) for node in site.readers) for site in sites]
    wanted = [(values, channel_axis(site.producer)) for values, site in zip(read, sites, strict=True)]
    names = list(dict.fromkeys(str(value.name) for values, _ in wanted for value in values))
    copy.graph.outputs.extend(made[name] for name in names if not made[name].is_graph_output())
    seen: list[list[Channels]] = [[] for _ in sites]
    for answer in run_all(open_session(copy), names, feeds, state):
        for place, (values, axis) in enumerate(wanted):
            seen[place] += [_of(answer[str(value.name)], axis) for value in values]
    return [_joined(each) for each in seen]


def equalize(
    graph: ir.Graph,
    sites: Sequence[Site],
    channels: Sequence[Channels],
    integer: frozenset[ir.Node],
    symmetric: bool,
    *,
    alike: bool = False,
    alone: bool = False,
) -> tuple[str, ...]:
    """Move scales in place where that lowers the expected noise of ``integer`` readers; names of the producers.

    ``alike``: every row of a reader counts as much as any other, however loud it is.  Rows that lie decades apart are
    often read by weights that make up for it, and would be moved together themselves.  ``alone``: activations are not
    rounded.
    """  # fmt: skip
    done = []
    for site, seen in zip(sites, channels, strict=True):
        weights = [_blocks(node) for node in site.readers if node in integer]
        if alike:
            weights = [_as_loud(weight, seen) for weight in weights]
        divisors = _best(weights, seen, symmetric, alone)
        if divisors is not None:
            _move(graph, site, divisors)
            done.append(str(site.producer.name))
    drop_unused(graph)
    return tuple(done)


def expected_noise(
    weights: Sequence[Array], seen: Channels, divisors: Array, symmetric: bool, alone: bool = False
) -> float:
    """Noise over signal of the readers' outputs, summed over readers, when channels are divided by ``divisors``.

    ``weights`` have the shape (groups, rows, channels of the group, taps).  Both operands are rounded to 8 bits:
    activations at one scale, weights at one per row; where weights are rounded ``alone``, their noise is all there is.
    """
    low, high = min(float((seen.low / divisors).min()), 0.0), max(float((seen.high / divisors).max()), 0.0)
    step = 0.0 if alone else (2 * max(-low, high) if symmetric else high - low) / _STEPS
    total = 0.0
    for weight in weights:
        factor, square = _per_group(divisors, weight), _per_group(seen.square, weight)
        scaled = weight * factor
        rows = np.abs(scaled).max(axis=(2, 3), keepdims=True) / _WEIGHT_STEPS
        rounded = weight.shape[3] * np.sum(rows**2 * square / factor**2)
        signal = np.sum(weight**2 * square)
        total += float(step**2 * np.sum(scaled**2) + rounded) / 12 / max(float(signal), 1e-30)
    return total


def _as_loud(weight: Array, seen: Channels) -> Array:
    """The weight with rows of one power."""
    power = np.sum(weight**2 * _per_group(seen.square, weight), axis=(2, 3), keepdims=True)
    return np.asarray(weight / np.sqrt(np.maximum(power, 1e-30)))


def _best(weights: Sequence[Array], seen: Channels, symmetric: bool, alone: bool) -> Array | None:
    reach = np.maximum(-seen.low, seen.high)
    used = reach > reach.max() / _WIDEST
    if not weights or not used.any():
        return None
    # The product is at least as wide as the noisiest reader needs it.
    needs = np.max([np.abs(weight).max(axis=(1, 3)).ravel() for weight in weights], axis=0)
    used &= needs > needs.max() / _WIDEST
    if not used.any():  # what is loud is what no reader looks at
        return None
    neutral = np.ones_like(reach)
    best, least = None, _LEAST_GAIN * expected_noise(weights, seen, neutral, symmetric, alone)
    for share in _SHARES:
        divisors = neutral.copy()
        divisors[used] = reach[used] ** share / needs[used] ** (1 - share)
        divisors[used] /= np.exp(np.log(divisors[used]).mean())
        divisors[used] = np.clip(divisors[used], _WIDEST**-0.5, _WIDEST**0.5)
        noise = expected_noise(weights, seen, divisors, symmetric, alone)
        if noise < least:
            best, least = divisors, noise
    return best


def _blocks(node: ir.Node) -> Array:
    """The node's weight as (groups, rows, channels of the group, taps), float64."""
    weight = constant(input_of(node, 1)).astype(np.float64)
    if node.op_type == "MatMul":
        return np.asarray(weight.T[None, :, :, None])
    groups = node.attributes.get_int("group", 1) if node.op_type == "Conv" else 1
    return np.asarray(weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1))


def _per_group(channels: Array, weight: Array) -> Array:
    return np.asarray(channels.reshape(weight.shape[0], 1, weight.shape[2], 1))


def _move(graph: ir.Graph, site: Site, divisors: Array) -> None:
    for node, index, axis in site.makers:
        array = constant(input_of(node, index)).astype(np.float64)
        _replace(graph, node, index, array / along(divisors, axis % array.ndim, array.ndim))
    for node in site.readers:
        shape = constant(input_of(node, 1)).shape
        blocks = _blocks(node)
        scaled = blocks * _per_group(divisors, blocks)
        _replace(graph, node, 1, scaled[0, :, :, 0].T if node.op_type == "MatMul" else scaled.reshape(shape))


def _replace(graph: ir.Graph, node: ir.Node, index: int, array: Array) -> None:
    name = f"{input_of(node, index).name}_equalized"
    node.replace_input_with(index, add_constant(graph, name, np.ascontiguousarray(array, np.float32)))


def _of(array: Array, axis: int) -> Channels:
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    return Channels(rows.min(axis=1), rows.max(axis=1), np.square(rows, dtype=np.float64).mean(axis=1))


def _joined(parts: Sequence[Channels]) -> Channels:
    low, high = np.min([each.low for each in parts], axis=0), np.max([each.high for each in parts], axis=0)
    return Channels(low.astype(np.float64), high.astype(np.float64), np.mean([each.square for each in parts], axis=0))
