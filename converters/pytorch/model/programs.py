"""What exported programs and eager modules say about their own inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from convertkit.artifact import Dim
from convertkit.converters.pytorch.compat import overloads, trees
from convertkit.converters.pytorch.model.examples import Example, ExampleArray, flattened, integer_range
from convertkit.converters.pytorch.model.leaves import BATCH, leaf_name
from convertkit.converters.pytorch.model.leaves import Path as Way
from convertkit.converters.pytorch.model.subject import Constant, Subject, to_array
from convertkit.errors import Unsupported

if TYPE_CHECKING:
    from convertkit.converters.pytorch.compat.shapes import KnownSize

_CONVENTIONS = ("example_inputs", "example_input_array", "dummy_inputs")
"""Attributes by which modules carry an example: plain PyTorch habit, Lightning, Transformers."""


def program_examples(subject: Subject) -> Mapping[str, Example] | Sequence[Example] | None:
    """Shapes and dtypes of the inputs, dynamic dimensions by name; None where nothing is said."""
    if subject.program is not None:
        return _of_program(subject, {})
    for name in _CONVENTIONS:
        example = getattr(subject.module, name, None)
        if callable(example):
            example = example()
        if example is not None:
            return _of_values(subject, example)
    return None


def _of_values(subject: Subject, example: object) -> Mapping[str, Example]:
    if isinstance(example, Mapping) and {p.name for p in subject.parameters} >= set(example):
        given = {str(name): value for name, value in example.items()}
    else:
        values = example if isinstance(example, tuple | list) else (example,)
        given = {p.name: value for p, value in zip(subject.parameters, values, strict=False)}
    left_out = {p.name for p in subject.parameters if not p.required and given.get(p.name) is None}
    return {name: _example(name, value) for name, value in given.items() if name not in left_out}


def _example(name: str, value: object) -> Example:
    return _flat(name, value, lambda tensor, path: _array(tensor))


def _flat(name: str, value: object, read: Callable[[Any, Way], ExampleArray]) -> Example:
    found = flattened(value, lambda each, path: read(each, path) if isinstance(each, torch.Tensor) else None)
    if not found:
        raise Unsupported(
            f"the example for {name} is a {type(value).__name__}; expected tensors, or tuples, lists and dicts of them"
        )
    return found


def _array(tensor: torch.Tensor) -> ExampleArray:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return ExampleArray(tuple(tensor.shape), dtype, integer_range(to_array(tensor)))


def program_sizes(subject: Subject) -> Mapping[str, KnownSize]:
    """What an exported program tells of its dynamic dimensions, by their names."""
    if subject.program is None:
        return {}
    names: dict[str, str] = {}
    _of_program(subject, names)
    values = (node.meta.get("val") for node in subject.program.graph.nodes if node.op == "placeholder")
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    free = {names[str(size)]: size for size in sizes if not isinstance(size, int) and str(size) in names}
    if not free:
        return {}
    from convertkit.converters.pytorch.compat import shapes  # which imports sympy, and archives do without

    told = {name: shapes.known_size(size) for name, size in free.items()}
    return {name: size for name, size in told.items() if size is not None}


def _of_program(subject: Subject, names: dict[str, str]) -> Mapping[str, Example]:
    """From the placeholders, whose symbolic sizes say what is dynamic; equal symbols get equal ``names``."""
    args, kwargs = arguments_of(subject.program, lambda node: node.meta["val"])
    values = [*zip((p.name for p in subject.parameters), args, strict=False), *kwargs.items()]
    return {name: _traced(name, value, names) for name, value in values if not isinstance(value, Constant)}


def arguments_of(program: Any, read: Callable[[Any], Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """What the program is called with, positional and by name: what ``read`` makes of placeholders, and constants."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = [
        read(placeholders[each]) if isinstance(each, str) and each in placeholders else Constant(each)
        for each in program.graph_signature.user_inputs
    ]
    args, kwargs = trees.unflattened(found, program.call_spec.in_spec)
    return args, kwargs


def _traced(name: str, value: Any, names: dict[str, str]) -> Example:
    return _flat(name, value, lambda tensor, path: _symbolic(leaf_name(name, path), tensor, names))


def _symbolic(name: str, tensor: torch.Tensor, names: dict[str, str]) -> ExampleArray:
    dims: list[Dim] = []
    for axis, size in enumerate(tensor.shape):
        if isinstance(size, int):
            dims.append(size)
            continue
        free = BATCH if axis == 0 and BATCH not in names.values() else f"{name}_{axis}"
        dims.append(names.setdefault(str(size), free))
    return ExampleArray(tuple(dims), str(tensor.dtype).removeprefix("torch."))


def written(nodes: Iterable[Any]) -> set[Any]:
    """Inputs, parameters and buffers of a graph that some operator changes, through whatever views of them."""
    return {_root(node.args[0]) for node in nodes if _writes(node)}


def _writes(node: Any) -> bool:
    """Whether the node changes its first argument."""
    return (
        node.op == "call_function"
        and overloads.is_overload(node.target)
        and (overloads.changes_an_argument(node.target) and bool(node.args) and isinstance(node.args[0], torch.fx.Node))
    )


def _root(node: Any) -> Any:
    """What the node is a view of."""
    while node.op == "call_function" and overloads.is_overload(node.target):
        if not overloads.returns_a_view(node.target) or not isinstance(node.args[0], torch.fx.Node):
            break
        node = node.args[0]
    return node
