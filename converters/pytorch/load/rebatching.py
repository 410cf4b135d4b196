"""An exported program of one batch as a module that takes any: its sizes are computed from its inputs again.

Without ``dynamic_shapes``, torch.export writes every size as the number that it had: ``view(x, [1, 192])``,
``zeros([2, 1, 10])``.  Which of those numbers was the batch is found by passing shapes alone (fake tensors) of another
batch through the graph: of a view, memory says which axis the batch went to; where that is not decided, or a tensor
is made or expanded, the possibilities are tried until all operators fit.  Nothing of this is believed: whoever uses
the result has to compare samples of a batch with what they give on their own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from convertkit.converters.pytorch.compat import shapes
from convertkit.converters.pytorch.model.failures import brief
from convertkit.converters.pytorch.model.programs import written
from convertkit.converters.pytorch.model.provenance import user_line

_ATEN = torch.ops.aten
_TIMES = 97
"""How many samples stand for one while shapes are passed through: a prime that no other size is."""
_MOST_TRIALS = 400
_VIEWS = frozenset({_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default})
_RANGES = frozenset({_ATEN.arange.default, _ATEN.arange.start, _ATEN.arange.start_step})
_SIZES: Mapping[Any, int] = MappingProxyType(
    {
        **dict.fromkeys(_VIEWS, 1),
        _ATEN.expand.default: 1,
        _ATEN.repeat.default: 1,
        _ATEN.zeros.default: 0,
        _ATEN.ones.default: 0,
        _ATEN.empty.memory_format: 0,
        _ATEN.full.default: 0,
        _ATEN.new_zeros.default: 1,
        _ATEN.new_ones.default: 1,
        _ATEN.new_empty.default: 1,
        _ATEN.new_full.default: 1,
        _ATEN.unflatten.int: 2,
        _ATEN.affine_grid_generator.default: 1,
        _ATEN.arange.default: 0,  # of ranges, where they end
        _ATEN.arange.start: 1,
        _ATEN.arange.start_step: 1,
    }
)
"""Operators that take a list of sizes, and the place of it among their arguments."""

Axes = tuple[int, ...]
"""Axes of a list of sizes that follow the batch."""


class Fixed(Exception):
    """Why the program's batch stays what it was."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A decision that may turn out otherwise: what was known before it, and what else there is to try.

    ``blame`` holds what the failures so far depend on: once nothing else is left to try here, a decision among those
    may be why.
    """

    place: int
    node: Any
    env: Mapping[Any, Any]
    chosen: Mapping[Any, Axes]
    others: tuple[Axes, ...]
    blame: frozenset[Any] = frozenset()


@dataclass(frozen=True, slots=True)
class Rebatched:
    """A program's module for any batch, the one that it had, and of each tensor that goes in whether it follows."""

    module: Any
    batch: int
    follows: tuple[bool, ...]


def rebatched(program: Any) -> Rebatched:
    """A program all of whose sizes are numbers, for any leading size of its inputs; ``Fixed`` where that cannot be."""
    module = program.module(check_guards=False)
    module.validate_inputs = False
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    batch = _batch(inputs)
    first = next(node for node in inputs if _leads(node, batch))
    chosen = _Search(module, nodes, batch, first).solved()
    _rewrite(module, chosen, batch, first)
    tensors = [node for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)]
    return Rebatched(module, batch, tuple(bool(chosen[node]) for node in tensors))


def is_static(program: Any) -> bool:
    """Whether all sizes of the program's inputs are numbers."""
    found = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    return all(isinstance(size, int) for value in found if isinstance(value, torch.Tensor) for size in value.shape)


def _batch(inputs: Sequence[Any]) -> int:
    """The leading size of the first input with a size."""
    shapes = [node.meta["val"].shape for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)]
    sizes = [int(shape[0]) for shape in shapes if shape]
    if not sizes or sizes[0] == 0:
        raise Fixed("no input has a leading size")
    return sizes[0]


def _leads(node: Any, batch: int) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == batch


class _Search:
    """Passes shapes of a larger batch through the graph, going back where operators do not fit."""

    def __init__(self, module: Any, nodes: Sequence[Any], batch: int, first: Any) -> None:
        self._interpreter = torch.fx.Interpreter(module, garbage_collect_values=False)
        self._nodes = nodes
        self._batch = batch
        self._written = {node for node in written(nodes) if node.op == "get_attr"}
        self._first = first

    def solved(self) -> Mapping[Any, Axes]:
        """For every node whose sizes follow the batch, the axes that do; buffers and inputs count as nodes."""
        env: dict[Any, Any] = {}
        chosen: dict[Any, Axes] = {}
        waiting: list[_Open] = []
        again: tuple[Axes, ...] = ()
        blame: frozenset[Any] = frozenset()
        place, trials = 0, 0
        with shapes.shapes_only():
            while place < len(self._nodes):
                node = self._nodes[place]
                axes, *others = again or self._possible(node, env)
                if others or blame:
                    waiting.append(_Open(place, node, dict(env), dict(chosen), tuple(others), blame))
                try:
                    env[node], chosen[node] = self._passed(node, axes, env), axes
                    place, again, blame = place + 1, (), frozenset()
                except _FAILURES as error:
                    trials += 1
                    undone = _undone(waiting, node) if trials < _MOST_TRIALS else None
                    if undone is None:
                        raise Fixed(_told(node, error)) from error
                    place, env, chosen = undone.place, dict(undone.env), dict(undone.chosen)
                    again, blame = undone.others, undone.blame
        return chosen

    def _passed(self, node: Any, axes: Axes, env: Mapping[Any, Any]) -> Any:
        """What the node makes of shapes, ``axes`` of its own sizes following the batch."""
        if node.op == "output":
            return None
        if node.op == "placeholder":
            value = node.meta.get("val")
            return _made(value, axes) if isinstance(value, torch.Tensor) else value
        if node.op == "get_attr":
            value = self._interpreter.fetch_attr(node.target)
            return _made(value, axes) if isinstance(value, torch.Tensor) else value
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.target in _CHECKS:
            _CHECKS[node.target](*args)
        if axes:
            args = _resized(node, args, _scaled(_sizes(node), axes, _TIMES))
        return node.target(*args, **kwargs)

    def _possible(self, node: Any, env: Mapping[Any, Any]) -> tuple[Axes, ...]:
        try:
            return self._options(node, env)
        except shapes.DependsOnData as error:
            raise Fixed(_told(node, "a size of it depends on data")) from error

    def _options(self, node: Any, env: Mapping[Any, Any]) -> tuple[Axes, ...]:
        """Which of a node's sizes may follow the batch, most likely ones first; () stands for none."""
        if node is self._first:
            return ((0,),)
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
            found = self._equal(node.meta["val"].shape)
            return (*found, ()) if (0,) in found else ((), *found)
        if node in self._written:
            return ((), *self._equal(self._interpreter.fetch_attr(node.target).shape))
        if node.op != "call_function" or node.target not in _SIZES:
            return ((),)
        if node.target in _VIEWS:
            return self._of_view(node, env)
        if node.target is _ATEN.expand.default and (follows := _grown(node.args[0], env)):
            behind = len(_sizes(node)) - node.args[0].meta["val"].dim()
            return (tuple(axis + behind for axis in follows if node.args[1][axis + behind] != -1),)
        if node.target in _RANGES:
            follow = self._equal(node.meta["val"].shape) if _sizes(node)[0] % self._batch == 0 else ()
            # The number of a single sample would be broadcast, which fits and is wrong.
            return (*follow, ()) if self._batch == 1 else ((), *follow)
        return ((), *self._equal(_sizes(node)))

    def _equal(self, sizes: Sequence[Any]) -> tuple[Axes, ...]:
        return tuple((axis,) for axis, size in enumerate(sizes) if size == self._batch)

    def _of_view(self, node: Any, env: Mapping[Any, Any]) -> tuple[Axes, ...]:
        """Axes of a view that can hold the batch, which lies in memory where the input has it."""
        before, after = tuple(node.args[0].meta["val"].shape), tuple(node.meta["val"].shape)
        follows = _grown(node.args[0], env)
        if not follows:
            return ((),)
        behind = math.prod(before[follows[0] + 1 :])
        # The batch is the outer part of its axis, or the inner.
        steps = [behind * before[follows[0]] // self._batch, behind]
        if self._is_inner(node.args[0], env):
            steps.reverse()
        found = []
        for axis, size in enumerate(after):
            inner = math.prod(after[axis + 1 :])
            places = (inner * size // self._batch, inner)
            ranks = [steps.index(place) for place in places if place in steps]
            if size % self._batch == 0 and ranks:
                found.append((size != self._batch, min(ranks), places[0] not in steps, axis))
        return tuple((axis,) for *_, axis in sorted(found)) or ((),)

    def _is_inner(self, node: Any, env: Mapping[Any, Any]) -> bool:
        """Whether the view that the axis with the batch comes from has put the batch behind something else."""
        axes = _grown(node, env)
        while node.op == "call_function" and node.all_input_nodes and "val" in node.meta:
            source = node.all_input_nodes[0]
            if not isinstance(node.meta["val"], torch.Tensor):  # what a split gives: its parts have been looked at
                node = source
                continue
            if _grown(node, env) != axes:
                return False
            if node.target in _VIEWS and (axis := _grown(source, env)):
                before, after = tuple(source.meta["val"].shape), tuple(node.meta["val"].shape)
                if after[axes[0]] != self._batch:
                    behind, inner = math.prod(before[axis[0] + 1 :]), math.prod(after[axes[0] + 1 :])
                    steps = (behind * before[axis[0]] // self._batch, behind)
                    return inner in steps and inner * after[axes[0]] // self._batch not in steps
            node = source
        return False


_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AssertionError)
"""What operators raise on shapes that do not fit."""


def _check_recurrent(x: torch.Tensor, state: Any, *rest: Any) -> None:
    """What torch leaves to nn.LSTM and its like: the operators themselves read beyond a state that is too small."""
    batch = x.shape[0 if rest[-1] else 1]
    for each in state if isinstance(state, list | tuple) else (state,):
        if each.shape[1] != batch:
            raise ValueError(f"a state of {each.shape[1]} samples for {batch}")


def _check_index(x: torch.Tensor, places: Sequence[torch.Tensor | None], *_: Any) -> None:
    torch.broadcast_shapes(*(place.shape for place in places if place is not None and place.dtype != torch.bool))


_CHECKS: Mapping[Any, Callable[..., None]] = MappingProxyType(
    {
        **dict.fromkeys(
            (_ATEN.lstm.input, _ATEN.gru.input, _ATEN.rnn_tanh.input, _ATEN.rnn_relu.input), _check_recurrent
        ),
        _ATEN.index.Tensor: _check_index,
    }
)
"""Of operators that take tensors of shapes that do not fit, and recurrent ones read memory that is not theirs."""


def _undone(waiting: list[_Open], failed: Any) -> _Open | None:
    """The last decision that the failure depends on; later ones go, as they are made again."""
    blame = _ancestors(failed)
    while waiting:
        last = waiting.pop()
        if last.node in blame:
            blame |= last.blame
            if last.others:
                return replace(last, blame=blame)
    return None


def _ancestors(node: Any) -> frozenset[Any]:
    """The node and all that it is computed from."""
    found, queue = set(), [node]
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue += node.all_input_nodes
    return frozenset(found)


def _made(value: torch.Tensor, axes: Axes) -> torch.Tensor:
    shape = _scaled(tuple(value.shape), axes, _TIMES)
    return torch.empty(shape, dtype=value.dtype)


def _scaled(sizes: Sequence[Any], axes: Axes, times: int) -> list[Any]:
    return [size * times if axis in axes else size for axis, size in enumerate(sizes)]


def _sizes(node: Any) -> Sequence[Any]:
    """The list of sizes that the node was given; of a view, what it came to."""
    if node.target in _VIEWS:
        return tuple(node.meta["val"].shape)
    sizes = node.args[_SIZES[node.target]]
    return sizes if isinstance(sizes, list | tuple) else (sizes,)


def _resized(node: Any, args: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
    """``args`` of a node with other sizes."""
    place = _SIZES[node.target]
    return (*args[:place], sizes if isinstance(args[place], list | tuple) else sizes[0], *args[place + 1 :])


def _grown(node: Any, env: Mapping[Any, Any]) -> Axes:
    """Axes of a node's result that are larger than they were."""
    before, now = node.meta["val"].shape if "val" in node.meta else (), env[node].shape
    return tuple(axis for axis, (old, new) in enumerate(zip(before, now, strict=False)) if old != new)


def _told(node: Any, error: BaseException | str) -> str:
    why = error if isinstance(error, str) else brief(error)
    line = user_line(node.meta.get("stack_trace", "") or "")
    return f"{node.target} ({line}) does not take another one: {why}" if line else f"{node.target}: {why}"


def _rewrite(module: Any, chosen: Mapping[Any, Axes], batch: int, first: Any) -> None:
    """Compute the chosen sizes from the leading size of the first input."""
    graph = module.graph
    with graph.inserting_after(_last_input(graph)):
        size = graph.call_function(_ATEN.sym_size.int, (first, 0))
    multiples: dict[int, Any] = {1: size}
    for node, axes in chosen.items():
        if not axes or node.target not in _SIZES:
            continue
        sizes = list(_sizes(node))
        for axis in axes:
            times = sizes[axis] // batch
            if times not in multiples:
                with graph.inserting_after(size):
                    multiples[times] = graph.call_function(operator.mul, (size, times))
            sizes[axis] = multiples[times]
        node.args = _resized(node, node.args, sizes)
    for node in graph.nodes:
        if node.target in _CHECKS:
            with graph.inserting_before(node):
                graph.call_function(_CHECKS[node.target], node.args)
    module.recompile()


def _last_input(graph: Any) -> Any:
    return [node for node in graph.nodes if node.op == "placeholder"][-1]
