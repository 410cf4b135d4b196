"""A module of the caller's process as a file that this converter reads; only where the caller has imported torch.

What is saved is made of a copy, so the caller's module keeps its mode, its device and its state.  torch.export comes
first; a script and a trace keep what it refuses.  A trace keeps one path of several, so whatever is saved is compared
with the module on other inputs first.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from convertkit.converters.pytorch.compat import trees
from convertkit.converters.pytorch.load.wrappers import unwrapped
from convertkit.converters.pytorch.model.failures import brief, innermost
from convertkit.errors import Unsupported, UsageError

_CONVENTIONS = ("example_inputs", "example_input_array", "dummy_inputs")
_FACTORS = (1.0, -1.0, 0.05, 4.0)
"""Signs and magnitudes that take a model through its branches."""
_ALIKE = 1e-4
"""Of the largest value: the same arithmetic, fused and summed in another order."""

_PROCESSOR = torch.device("cpu")
_FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, torch.jit.frontend.FrontendError),
)
"""What a module raises on inputs that do not suit it, and exporters on modules."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A copy of the module in evaluation mode, and what to call it with."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def with_inputs(self, change: Callable[[torch.Tensor], torch.Tensor]) -> _Call:
        """The same call with other tensors."""
        args, kwargs = trees.with_tensors(change, (self.args, self.kwargs))
        return _Call(self.module, args, kwargs)

    def results(self, compute: Any) -> list[torch.Tensor]:
        """The tensors that ``compute`` gives for copies of the inputs."""
        args, kwargs = trees.with_tensors(torch.clone, (self.args, self.kwargs))
        with torch.no_grad():
            found = trees.leaves(compute(*args, **kwargs))
        return [each for each in found if isinstance(each, torch.Tensor)]


def saved_live(model: object, example: object, folder: Path) -> Path | None:
    """The file that ``model`` was saved as; None where it is not an object of torch.

    Raises ``UsageError`` where an example is missing or the module fails on it, ``Unsupported`` where neither
    torch.export nor TorchScript captures what the module computes.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return _written(folder / "program.pt2", lambda path: torch.export.save(model, path))
    if isinstance(model, torch.jit.ScriptModule):
        return _written(folder / f"{model.original_name}.pt", lambda path: torch.jit.save(model, path))
    if not isinstance(model, torch.nn.Module):
        return None
    call = _call(model, example)
    name = type(call.module).__name__
    failures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way, (suffix, capture) in _WAYS.items():
            try:
                compute, save = capture(call)
                if not _agrees(call, compute):
                    failures.append(f"  tried {way}: it gives a different result from the module on other inputs")
                    continue
                return _written(folder / f"{name}{suffix}", save)
            except _FAILURES as error:
                failures.append(f"  tried {way}: {brief(innermost(error))}")
    told = "\n".join(failures)
    raise Unsupported(
        f"neither torch.export nor TorchScript captures what {name} computes\n{told}",
        ways_out=("torch.cond or torch.while_loop where data decides what is computed",),
    )


def _written(path: Path, save: Callable[[str], object]) -> Path:
    save(str(path))
    return path


def _call(model: torch.nn.Module, example: object) -> _Call:
    name = type(model).__name__
    for convention in _CONVENTIONS:
        if example is None:
            example = getattr(model, convention, None)
    if callable(example):
        example = example()
    if example is None:
        raise UsageError(
            f"a live {name} needs an example of its inputs\n"
            "  try   example=torch.randn(1, 3, 224, 224), a tuple of arguments, or a dict of them by name"
        )
    module = unwrapped(_Holder(copy.deepcopy(model))).get_submodule("held").eval()
    held = [each.device for each in (*module.parameters(), *module.buffers()) if not each.is_meta]
    return _computed(name, module, example, tuple(dict.fromkeys((_PROCESSOR, *held))))


def _computed(name: str, module: torch.nn.Module, example: object, places: tuple[torch.device, ...]) -> _Call:
    """The call on the first place that computes it: code that names a GPU computes there alone.

    What is saved there, a worker reads on the processor.
    """
    try:
        moved = module.to(places[0])
        call = _Call(moved, *_arguments(moved, example, places[0]))
        call.results(moved)
    except Exception as error:
        if places[1:]:
            return _computed(name, module, example, places[1:])
        raise UsageError(f"{name} fails on the example: {type(error).__name__}: {brief(error)}") from error
    return call


class _Holder(torch.nn.Module):  # type: ignore[misc]
    """What lets a wrapper around the whole module be taken off like one around a part."""

    def __init__(self, held: torch.nn.Module) -> None:
        super().__init__()
        self.held = held


def _arguments(module: torch.nn.Module, example: object, place: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, arrays as tensors; a dict is one argument where its keys are not parameters."""
    given = trees.mapped(partial(_tensor, place), example)
    if isinstance(given, Mapping) and set(given) <= set(inspect.signature(module.forward).parameters):
        return (), dict(given)
    return (tuple(given) if isinstance(given, tuple | list) else (given,)), {}


def _tensor(place: torch.device, value: Any) -> Any:
    given = torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value
    return given.detach().to(place) if isinstance(given, torch.Tensor) else given


def _agrees(call: _Call, compute: Any) -> bool:
    """Whether the captured form gives what the module gives, on the example and on others of its shapes."""
    for factor in _FACTORS:
        other = call.with_inputs(partial(_scaled, factor))
        try:
            expected = other.results(call.module)
        except _FAILURES:  # the module itself may refuse such numbers
            continue
        if not _alike(expected, other.results(compute)):
            return False
    return True


def _scaled(factor: float, value: torch.Tensor) -> torch.Tensor:
    return value * factor if value.is_floating_point() else value


def _alike(expected: list[torch.Tensor], got: list[torch.Tensor]) -> bool:
    return len(expected) == len(got) and all(
        want.shape == have.shape
        and bool(torch.isclose(want, have, rtol=0.0, atol=_ALIKE * _largest(want), equal_nan=True).all())
        for want, have in zip(expected, got, strict=True)
    )


def _largest(value: torch.Tensor) -> float:
    finite = value[torch.isfinite(value)] if value.is_floating_point() else value.double()
    return float(finite.abs().max()) + 1e-30 if finite.numel() else 1.0


_Captured = tuple[Any, Callable[[str], object]]


def _exported(call: _Call) -> _Captured:
    """An exported program whose batch is dynamic where torch lets it be: an example of one sample is taken twice."""
    try:
        program = _of_free_batch(call)
        _check_sizes(call, program)
    except _FAILURES:  # of whatever stops a dynamic batch: the program with fixed sizes may work
        program = torch.export.export(call.module, call.args, call.kwargs, strict=False)
    return program.module(), lambda path: torch.export.save(program, path)


def _of_free_batch(call: _Call) -> Any:
    twice = call.with_inputs(lambda value: torch.cat([value, value]) if value.dim() and value.shape[0] == 1 else value)
    twice.results(call.module)
    dims = trees.mapped(
        lambda value: {0: torch.export.Dim.AUTO} if isinstance(value, torch.Tensor) and value.dim() else None,
        (twice.args, twice.kwargs),
    )
    names = [*inspect.signature(call.module.forward).parameters][: len(twice.args)]
    shapes = {**dict(zip(names, dims[0], strict=True)), **dims[1]}
    return torch.export.export(twice.module, twice.args, twice.kwargs, dynamic_shapes=shapes, strict=False)


def _check_sizes(call: _Call, program: Any) -> None:
    """Raise what the module raises where leading axes that torch.export left open do not take other sizes.

    The two rows of a graph's edges, or nodes that edges number, are not a batch.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    inputs = [nodes[name].meta["val"] for name in program.graph_signature.user_inputs if name in nodes]
    sizes = [value.shape[0] if value.dim() else 0 for value in inputs if isinstance(value, torch.Tensor)]
    for size in dict.fromkeys(str(each) for each in sizes if isinstance(each, torch.SymInt)):
        for count in (1, 3):
            places = iter(sizes)
            call.with_inputs(partial(_resized, places, size, count)).results(call.module)


def _resized(sizes: Iterator[Any], size: str, count: int, value: torch.Tensor) -> torch.Tensor:
    """The next tensor, with ``count`` entries along its leading axis where that has the ``size``."""
    return _of_length(value, count) if str(next(sizes)) == size else value


def _of_length(value: torch.Tensor, count: int) -> torch.Tensor:
    """The first entries along the leading axis, repeated as often as that takes."""
    return torch.cat([value] * -(-count // max(1, value.shape[0])))[:count]


def _scripted(call: _Call) -> _Captured:
    """A script within a trace: it keeps loops and branches on data, and the archive knows the example's shapes."""
    script = torch.jit.script(call.module)
    parameters = list(inspect.signature(call.module.forward).parameters.values())

    def forward(self: Any, *args: Any) -> Any:
        return self.script(*args)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [each.replace(default=inspect.Parameter.empty) for each in parameters]
    forward.__signature__ = inspect.Signature([own, *plain])  # type: ignore[attr-defined]
    around = type(type(call.module).__name__, (torch.nn.Module,), {"forward": forward})()
    around.script = script
    given = {**dict(zip((each.name for each in parameters), call.args, strict=False)), **call.kwargs}
    return _saved(around, tuple(given[each.name] for each in parameters if each.name in given))


def _traced(call: _Call) -> _Captured:
    if call.kwargs:
        trace = torch.jit.trace(call.module, example_kwarg_inputs=call.kwargs, check_trace=False, strict=False)
        return trace, trace.save
    return _saved(call.module, call.args)


def _saved(module: Any, args: tuple[Any, ...]) -> _Captured:
    trace = torch.jit.trace(module, args, check_trace=False, strict=False)
    return trace, trace.save


_WAYS: Mapping[str, tuple[str, Callable[[_Call], _Captured]]] = {
    "torch.export": (".pt2", _exported),
    "torch.jit.script": (".pt", _scripted),
    "torch.jit.trace": (".pt", _traced),
}
