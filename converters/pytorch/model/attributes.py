"""Attributes of a module, read and written by path: names lead through modules, lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from convertkit.converters.pytorch.compat import modules, scripts
from convertkit.converters.pytorch.model.subject import Subject
from convertkit.errors import Unsupported

Path = tuple[str, ...]
_NOT_STATE = frozenset({"training", "_is_full_backward_hook", "call_super_init", "dump_patches"})


def snapshot(subject: Subject, attributes: Sequence[Path] = ()) -> dict[Path, Any]:
    """Copies of all tensors and numbers that the module's attributes hold, by path, and the keys of lists and dicts.

    ``attributes`` are those of a script, where they are known already.
    """
    if subject.kind == "torchscript":
        known = attributes or script_attributes(subject.module)
        values = dict(pair for each in known for pair in _values(_read_script(subject.module, each), each))
    else:
        values = dict(_eager_values(subject.module))
    return {
        path: value.detach().clone() if isinstance(value, torch.Tensor) else value for path, value in values.items()
    }


def _read_script(module: Any, path: Path) -> Any:
    """The attribute of a ScriptModule; of an archive's own classes Python can hold no objects."""
    try:
        return read(module, path)
    except RuntimeError as error:
        raise Unsupported(
            f"the attribute {'.'.join(path)!r} lies in an object of a script class, which no archive lets be read",
            ways_out=("tensors as attributes of the module itself",),
        ) from error


def restore(subject: Subject, values: Mapping[Path, Any]) -> None:
    """Write back what :func:`snapshot` took; parameters are left alone."""
    with torch.no_grad():
        for path, value in values.items():
            if isinstance(value, Keys):
                trim(subject.module, path, value)
            elif not same_value(read(subject.module, path), value):
                write(subject.module, path, value.clone() if isinstance(value, torch.Tensor) else value)


def trim(module: Any, path: Path, keys: Keys) -> None:
    """Let a list or dict have those keys again; a value that was lost is None until it is written."""
    held = read(module, path)
    if _keys(held) == keys:
        return
    if isinstance(held, dict):
        kept = {key: held.get(key) for key in keys}
        held.clear()
        held.update(kept)
    else:
        held[:] = [held[place] if place < len(held) else None for place in range(len(keys))]
    if isinstance(read(module, path[:-1]), torch.jit.ScriptModule):
        write(module, path, held)  # of which Python saw a copy


def read(module: Any, path: Path) -> Any:
    """The attribute at ``path``; names lead through modules, lists, tuples and dicts."""
    return inside(module, path)


def inside(value: Any, path: Path) -> Any:
    """The same for any value."""
    for name in path:
        if isinstance(value, list | tuple):
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value[name]
        else:
            value = getattr(value, name)
    return value


def write(module: Any, path: Path, value: Any) -> None:
    """Set the attribute at ``path``; of a ScriptModule's lists and dicts Python sees copies, which go back whole."""
    owner = read(module, path[:-1])
    if isinstance(owner, tuple):
        place = int(path[-1])
        write(module, path[:-1], (*owner[:place], value, *owner[place + 1 :]))
        return
    if not isinstance(owner, list | dict):
        setattr(owner, path[-1], value)
        return
    if isinstance(owner, list):
        owner[int(path[-1])] = value
    else:
        owner[path[-1]] = value
    if isinstance(read(module, path[:-2]), torch.jit.ScriptModule):
        write(module, path[:-1], owner)


def script_attributes(module: Any) -> tuple[Path, ...]:
    """Attributes that ``forward`` reads or writes, parameters left out."""
    graph = scripts.inlined(module.forward.graph)
    objects: dict[str, Path] = {next(iter(graph.inputs())).debugName(): ()}
    found: dict[Path, None] = {}
    _collect(graph, objects, found)
    parameters = {tuple(name.split(".")) for name, _ in module.named_parameters()}
    return tuple(path for path in found if path not in parameters)


def _collect(block: Any, objects: dict[str, Path], found: dict[Path, None]) -> None:
    for node in block.nodes():
        if node.kind() in ("prim::GetAttr", "prim::SetAttr"):
            owner = objects.get(next(iter(node.inputs())).debugName())
            if owner is not None:
                path = (*owner, node.s("name"))
                if node.kind() == "prim::GetAttr" and node.output().type().kind() in ("ClassType", "InterfaceType"):
                    objects[node.output().debugName()] = path
                else:
                    found[path] = None
        for inner in node.blocks():
            _collect(inner, objects, found)


def _eager_values(module: torch.nn.Module) -> Iterator[tuple[Path, Any]]:
    for name, each in module.named_modules():
        prefix = tuple(name.split(".")) if name else ()
        for attribute, value in modules.attributes(each).items():
            if not attribute.startswith("__") and attribute not in _NOT_STATE and attribute not in modules.OWN:
                yield from _values(value, (*prefix, attribute))


class Keys(tuple[object, ...]):
    """Of a dict, and of a list the places."""


def _keys(value: Any) -> Keys:
    return Keys(value if isinstance(value, dict) else range(len(value)))


def _values(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if value is None or (
        isinstance(value, torch.Tensor | bool | int | float) and not isinstance(value, torch.nn.Parameter)
    ):
        yield path, value
    elif type(value) in (list, tuple):
        if type(value) is list:
            yield path, _keys(value)
        for place, item in enumerate(value):
            yield from _values(item, (*path, str(place)))
    elif type(value) is dict:
        yield path, _keys(value)
        for key, item in value.items():
            if isinstance(key, str):
                yield from _values(item, (*path, key))


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of an attribute are of one type and equal; NaN equals NaN."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(_without_nan(a), _without_nan(b))
        return bool(same)
    return type(a) is type(b) and bool(a == b)


def _without_nan(values: torch.Tensor) -> torch.Tensor:
    """Numbers alone; torch has no such function of floats of 8 bits, which float32 holds."""
    is_short = values.is_floating_point() and values.itemsize == 1
    return torch.nan_to_num(values.float() if is_short else values)
