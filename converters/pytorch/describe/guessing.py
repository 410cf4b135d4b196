"""A model's interface by what its file says alone, so that an exporter can begin before the model has run.

What is said here is settled by nothing: the model is run meanwhile, and an attempt at an interface that turns out to
be another one is thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from convertkit.converters.pytorch.describe.inputs import example_sizes, free_batch, free_following, leaves_of
from convertkit.converters.pytorch.describe.probing import further_sizes
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.programs import program_examples, written
from convertkit.converters.pytorch.model.subject import Subject, named_outputs
from convertkit.converters.pytorch.read.examples import traced_examples
from convertkit.errors import Unsupported

_EXAMPLE_SIZE = 2
"""Of free dimensions: a size of 1 would be taken for a constant."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Inputs, the sizes of their free dimensions in the example, names of the outputs, and the road to take.

    ``trials`` are the sizes at which the road will be judged.
    """

    leaves: tuple[Leaf, ...]
    sizes: Mapping[str, int]
    outputs: tuple[str, ...]
    route: str
    trials: tuple[Mapping[str, int], ...]


def guess(subject: Subject, path: Path, options: Sequence[Mapping[str, Any]]) -> Guess:
    """The interface of a model without state; ``Unsupported`` where only running it can tell."""
    route = "torchscript-exporter"
    if subject.program is not None:
        fixed = leaves = leaves_of(subject, program_examples(subject), options)
        outputs, route = _of_program(subject.program, fixed), "program"
        if subject.exported_batch:
            leaves, route = free_following(leaves, subject.follows) or free_batch(leaves) or leaves, "torch.export"
    else:
        fixed = leaves_of(subject, traced_examples(path), options)
        leaves = free_batch(fixed) or fixed
        outputs = _of_script(subject.module, fixed)
    names = {dim for leaf in leaves for dim in leaf.shape if isinstance(dim, str)}
    trials = (example_sizes(leaves, fixed), *further_sizes(leaves))
    return Guess(leaves, dict.fromkeys(names, _EXAMPLE_SIZE), outputs, route, trials)


def _of_script(module: Any, leaves: Sequence[Leaf]) -> tuple[str, ...]:
    if any(_sets_attributes(each) for each in module.modules()):
        raise Unsupported("the model may keep state")
    if [value.type().kind() for value in module.forward.graph.outputs()] != ["TensorType"]:
        raise Unsupported("what the model returns has names that a run tells")
    return tuple(name for name, _ in named_outputs(torch.empty(0), [leaf.name for leaf in leaves]))


def _sets_attributes(module: Any) -> bool:
    """Whether any method does; to inline all that ``forward`` calls takes as long as to load the model."""
    methods = (module._c._get_method(name) for name in module._c._method_names())
    return any(method.graph.findNode("prim::SetAttr") is not None for method in methods)


def _of_program(program: Any, leaves: Sequence[Leaf]) -> tuple[str, ...]:
    changed = {node.name for node in written(program.graph.nodes)}
    if program.graph_signature.buffers_to_mutate or changed & set(program.graph_signature.inputs_to_buffers):
        raise Unsupported("the model keeps state")
    values = {node.name: node.meta["val"] for node in program.graph.nodes if "val" in node.meta}
    names = program.graph_signature.user_outputs
    if any(name not in values for name in names):
        raise Unsupported("the model returns constants")
    result = torch.utils._pytree.tree_unflatten([values[name] for name in names], program.call_spec.out_spec)
    return tuple(name for name, _ in named_outputs(result, [leaf.name for leaf in leaves]))
