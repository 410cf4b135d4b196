"""What exported programs and eager modules say about their own inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from convertkit.artifact import Dim
from convertkit.converters.pytorch.examples import Example, ExampleArray, integer_range
from convertkit.converters.pytorch.inputs import BATCH
from convertkit.converters.pytorch.subject import Subject, to_array
from convertkit.errors import Unsupported

_CONVENTIONS = ("example_inputs", "example_input_array", "dummy_inputs")
"""Attributes by which modules carry an example: plain PyTorch habit, Lightning, Transformers."""


def program_examples(subject: Subject) -> Mapping[str, Example] | Sequence[Example] | None:
    """Shapes and dtypes of the inputs, free dimensions by name; None where nothing is said."""
    if subject.program is not None:
        return _of_program(subject)
    for name in _CONVENTIONS:
        example = getattr(subject.module, name, None)
        if callable(example):
            example = example()
        if example is not None:
            return _of_values(subject, example)
    return None


def _of_values(subject: Subject, example: object) -> Mapping[str, Example]:
    if isinstance(example, Mapping):
        return {str(name): _example(str(name), value) for name, value in example.items()}
    values = example if isinstance(example, tuple | list) else (example,)
    return {p.name: _example(p.name, value) for p, value in zip(subject.parameters, values, strict=False)}


def _example(name: str, value: object) -> Example:
    if isinstance(value, torch.Tensor):
        return Example((_array(value),))
    if isinstance(value, tuple | list) and all(isinstance(item, torch.Tensor) for item in value):
        return Example(tuple(_array(item) for item in value), type(value).__name__)
    raise Unsupported(
        f"the example for {name} is a {type(value).__name__}; expected tensors, or a tuple or list of them"
    )


def _array(tensor: torch.Tensor) -> ExampleArray:
    array = to_array(tensor)
    return ExampleArray(tuple(array.shape), array.dtype.name, integer_range(array))


def _of_program(subject: Subject) -> Mapping[str, Example]:
    """From the placeholders, whose symbolic sizes say what is free; equal symbols get equal names."""
    program = subject.program
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = [placeholders[name].meta["val"] for name in program.graph_signature.user_inputs if name in placeholders]
    args, kwargs = torch.utils._pytree.tree_unflatten(found, program.call_spec.in_spec)
    names: dict[str, str] = {}
    values = [*zip((p.name for p in subject.parameters), args, strict=False), *kwargs.items()]
    return {name: _traced(name, value, names) for name, value in values}


def _traced(name: str, value: Any, names: dict[str, str]) -> Example:
    if isinstance(value, torch.Tensor):
        return Example((_symbolic(name, value, names),))
    if isinstance(value, tuple | list) and all(isinstance(item, torch.Tensor) for item in value):
        items = tuple(_symbolic(f"{name}_{place}", item, names) for place, item in enumerate(value))
        return Example(items, type(value).__name__)
    raise Unsupported(f"the program's input {name} is a {type(value).__name__}; expected tensors")


def _symbolic(name: str, tensor: torch.Tensor, names: dict[str, str]) -> ExampleArray:
    dims: list[Dim] = []
    for axis, size in enumerate(tensor.shape):
        if isinstance(size, int):
            dims.append(size)
            continue
        free = BATCH if axis == 0 and BATCH not in names.values() else f"{name}_{axis}"
        dims.append(names.setdefault(str(size), free))
    return ExampleArray(tuple(dims), str(tensor.dtype).removeprefix("torch."))
