"""A model as one module from flat tensors to flat tensors, state included, for torch.export."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import traceback as fx_traceback

from convertkit.converters.pytorch.compat import trees
from convertkit.converters.pytorch.model.attributes import Path, read, write
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.state import Slot, lifted
from convertkit.converters.pytorch.model.subject import Subject, named_outputs
from convertkit.converters.pytorch.routes.replay import Memory, Replay


def is_constant(leaf: Leaf) -> bool:
    """Whether a Python number can have one value only, so that the graph holds it."""
    return leaf.scalar and leaf.value_range is not None and leaf.value_range[1] - leaf.value_range[0] == 1


class Flat(torch.nn.Module):  # type: ignore[misc]
    """Takes every leaf that is not a constant, in order, then the state; returns outputs, then the next state."""

    def __init__(self, subject: Subject, leaves: Sequence[Leaf], slots: Sequence[Slot]) -> None:
        super().__init__()
        self._box = (subject,)  # a tuple, so that a ScriptModule is not registered as a submodule
        self._plain = tuple(leaf for leaf in leaves if leaf.parameter)
        self._slots = tuple(slots)
        self.model = Replay(subject.module) if subject.kind == "torchscript" else subject.module
        self._numbers = _whole_numbers(subject.module, {slot.path for slot in slots})

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Compute once."""
        given = iter(tensors)
        values = {leaf.name: _fixed(leaf) if is_constant(leaf) else next(given) for leaf in self._plain}
        args, kwargs = self._box[0].arguments(self._plain, values)
        state = {slot.path: next(given).clone() for slot in lifted(self._slots)}
        constants = _constants(self._slots, self._plain, values)
        numbers = {path: held for path, held in self._numbers.items() if path not in constants}
        compute = self._replayed if isinstance(self.model, Replay) else self._called
        result, after = compute(args, kwargs, state, {**numbers, **constants})
        outputs = [_tensor(value) for _, value in named_outputs(result)]
        return (*outputs, *(_tensor(after[slot.path]) for slot in lifted(self._slots)))

    def _replayed(
        self, args: Any, kwargs: Any, state: dict[Path, Any], constants: Mapping[Path, Any]
    ) -> tuple[Any, dict[Any, Any]]:
        numbers = {slot.path for slot in self._slots if slot.number and slot.dtype != "bool"}
        memory = Memory({p: value.item() if p in numbers else value for p, value in state.items()}, constants)
        result = self.model.replay(args, kwargs, memory)
        return result, {path: memory.value(path) for path in state}

    def _called(
        self, args: Any, kwargs: Any, state: dict[Path, Any], constants: Mapping[Path, Any]
    ) -> tuple[Any, dict[Any, Any]]:
        """Call an eager module with the state in place, and leave it as it was found."""
        before = {path: read(self.model, path) for path in (*(slot.path for slot in self._slots), *self._numbers)}
        try:
            for path, value in {**constants, **state}.items():
                write(self.model, path, torch.tensor(value) if path in self._numbers else value)
            compute = _with_lines(self.model) if isinstance(self.model, torch.fx.GraphModule) else self.model
            result = compute(*args, **kwargs)
            return result, {path: read(self.model, path) for path in state}
        finally:
            for path, value in before.items():
                write(self.model, path, value)


def _with_lines(program: torch.fx.GraphModule) -> Callable[..., Any]:
    """The module of an exported program, node by node: the tracer keeps the line of Python that each came from."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        leaves = trees.leaves_of_call(args, kwargs)
        with fx_traceback.preserve_node_meta():
            results = torch.fx.Interpreter(program).run(*leaves, enable_io_processing=False)
        return program.graph.process_outputs(results)

    return compute


def _whole_numbers(module: torch.nn.Module, changing: Collection[Path]) -> dict[Path, int]:
    """Buffers of one int64 without dimensions that no call changes, as numbers: sizes are computed from them.

    The tracer knows the value of a tensor that is made while it traces, not of a buffer, and sizes that come from one
    would depend on data.  An exported program has none left whose sizes do.
    """
    if isinstance(module, torch.fx.GraphModule):
        return {}
    found = {tuple(name.split(".")): held for name, held in module.named_buffers()}
    return {
        path: int(held.item())
        for path, held in found.items()
        if held.dtype == torch.int64 and held.dim() == 0 and path not in changing
    }


def _constants(slots: Sequence[Slot], leaves: Sequence[Leaf], values: Mapping[str, Any]) -> dict[Path, Any]:
    """The settled values; the size of the batch, which is a symbol under export, where they follow it."""
    sizes = {
        dim: values[leaf.name].shape[axis]
        for leaf in leaves
        for axis, dim in enumerate(leaf.shape)
        if isinstance(dim, str)
    }
    return {
        slot.path: sizes[slot.constant] if isinstance(slot.constant, str) else slot.constant
        for slot in slots
        if slot.constant is not None
    }


def _fixed(leaf: Leaf) -> bool | int | float:
    assert leaf.value_range is not None
    low = leaf.value_range[0]
    return bool(low) if leaf.dtype == "bool" else int(low) if leaf.dtype.startswith("int") else low


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    kind = (
        torch.bool
        if isinstance(value, bool)
        else torch.int64
        if isinstance(value, int | torch.SymInt)
        else torch.float32
    )
    return torch.scalar_tensor(value, dtype=kind)
