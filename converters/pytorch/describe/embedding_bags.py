"""Inputs that say where bags of an embedding begin: drawn at random they would begin nowhere (in a fork of the worker).

Source of the rule: ``check_arguments`` in aten/src/ATen/native/EmbeddingBag.cpp: offsets begin at 0, do not fall, and
end within the ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from convertkit.converters.pytorch.compat import overloads, scripts
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.subject import Subject, value_for
from convertkit.stage import Feed

_BAGS = frozenset({"aten::embedding_bag", "aten::_embedding_bag", "aten::_embedding_bag_forward_only"})
_OF_FEW = 2
"""Above the largest offset where the number of ids is free, so that there are ids for it at any size."""


def has_bags(subject: Subject) -> bool:
    """Whether the model may look up bags."""
    if subject.program is not None:
        return any("embedding_bag" in str(node.target) for node in subject.program.graph.nodes)
    if subject.code and b"embedding_bag" not in subject.code:
        return False  # to inline all that forward calls takes as long as to load the model
    if subject.kind == "torchscript":
        return scripts.inlined(subject.module.forward.graph).findNode("aten::embedding_bag") is not None
    return any(isinstance(each, torch.nn.EmbeddingBag) for each in subject.module.modules())


def offsets_of(subject: Subject, leaves: tuple[Leaf, ...], feed: Feed) -> tuple[Leaf, ...]:
    """The inputs, those that bags take as their offsets marked as such; the state is left as the call makes it."""
    values = {leaf.name: value_for(leaf, feed[leaf.name]) for leaf in leaves}
    args, kwargs = subject.arguments(leaves, values)
    watch = _Watch()
    try:
        with torch.no_grad(), watch:
            subject.module(*args, **kwargs)
    except (RuntimeError, ValueError, TypeError, IndexError, torch.jit.Error):
        pass  # offsets drawn at random are refused, by the operator that has been seen by then
    memory = {value.data_ptr(): leaf for leaf in leaves if torch.is_tensor(value := values[leaf.name])}
    marked = {memory[offsets].name: memory.get(ids) for ids, offsets in watch.seen if offsets in memory}
    return tuple(_marked(leaf, marked[leaf.name]) if leaf.name in marked else leaf for leaf in leaves)


def _marked(offsets: Leaf, ids: Leaf | None) -> Leaf:
    count = ids.shape[0] if ids is not None and ids.shape else None
    most = count + 1 if isinstance(count, int) else _OF_FEW
    bounds: tuple[float, float] = offsets.value_range or (0.0, float(most))
    return dataclasses.replace(offsets, value_range=bounds, rising=True)


class _Watch(overloads.TorchDispatchMode):  # type: ignore[misc]
    """Writes down where in memory the ids and the offsets of bags lie."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if overloads.name_of(func) in _BAGS:
            self.seen.append((args[1].data_ptr(), args[2].data_ptr()))
        return func(*args, **(kwargs or {}))
