"""Executing a TorchScript graph operator by operator in Python, so that torch.export can watch.

torch.export refuses ScriptModules because it cannot see into them.  Here every tensor operator is
called through ``torch.ops`` (the tracer records it), numbers and lists are Python's, branches on
sizes are decided, branches on data become ``torch.cond``, and attributes that ``forward`` writes live
in a dictionary, so that state can go in and come out as tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import traceback as fx_traceback

from convertkit.converters.pytorch.compat import scripts
from convertkit.converters.pytorch.load.registered_operators import registered
from convertkit.converters.pytorch.model.attributes import inside
from convertkit.converters.pytorch.model.provenance import python_trace
from convertkit.converters.pytorch.operators.fused import FUSED
from convertkit.converters.pytorch.routes.calls import as_tensor, bound, cast_number, holds_tensor, operator_of
from convertkit.converters.pytorch.routes.numbers import NUMERIC, ON_LISTS
from convertkit.converters.pytorch.routes.scalars import ALWAYS
from convertkit.converters.pytorch.routes.script_blocks import free_names, line_of, raises, writes
from convertkit.errors import Unsupported

Path = tuple[str, ...]
_MAX_LOOP = 4096
_FIXED = ("a size of its own for what data decides, a largest length with a mask, say",)


class ScriptRaised(RuntimeError):
    """The model's own ``raise`` was reached."""


@dataclass(frozen=True, slots=True)
class Object:
    """A submodule, by the names that lead to it; its attributes are looked up when they are used."""

    path: Path
    script: Any


@dataclass(slots=True)
class Memory:
    """Attributes that differ from what the archive holds: state that came in, and what ``forward`` wrote."""

    values: dict[Path, Any] = field(default_factory=dict)
    constants: Mapping[Path, Any] = field(default_factory=dict)
    containers: dict[Path, Any] = field(default_factory=dict)
    """Lists, tuples and dicts of tensors, as ``forward`` left them."""

    def value(self, path: Path) -> Any:
        """What is at ``path`` now."""
        held = next((length for length in range(1, len(path)) if path[:length] in self.containers), None)
        return self.values[path] if held is None else inside(self.containers[path[:held]], path[held:])

    def write(self, path: Path, value: Any) -> None:
        """Remember a write; one that only confirms a constant is none."""
        if isinstance(value, list | dict | tuple):
            self.containers[path] = value
        elif path not in self.constants:
            self.values[path] = value


class Replay(torch.nn.Module):  # type: ignore[misc]
    """A ScriptModule as an eager module.

    Its parameters, buffers, tensor attributes and constants are buffers here, under names that keep the path.
    """

    def __init__(self, script: Any) -> None:
        super().__init__()
        self._box = (script,)  # a tuple, so that torch does not register the ScriptModule as a submodule
        self._slots: dict[Path, str] = {}
        self._graphs: dict[Path, Any] = {}
        for name, tensor in (*script.named_parameters(), *script.named_buffers()):
            self._hold(tuple(name.split(".")), tensor)

    def replay(self, args: Sequence[Any], kwargs: Mapping[str, Any], memory: Memory) -> Any:
        """What ``forward`` returns; ``memory`` holds what it wrote."""
        script = self._box[0]
        return self._method(Object((), script), "forward", list(args), dict(kwargs), memory)

    def _method(self, target: Object, name: str, args: list[Any], kwargs: dict[str, Any], memory: Memory) -> Any:
        key = (*target.path, name)
        if key not in self._graphs:
            self._graphs[key] = scripts.inlined(getattr(target.script, name).graph)
        schema = getattr(target.script, name).schema
        inputs = [target, *args]
        for argument in schema.arguments[len(inputs) :]:
            inputs.append(kwargs.get(argument.name, argument.default_value))
        run = _Run(self, memory, {})
        graph = self._graphs[key]
        for value, given in zip(graph.inputs(), inputs, strict=True):
            run.env[value.debugName()] = given
        results = run.block(graph)
        return results[0] if len(results) == 1 else tuple(results)

    def read(self, target: Object, name: str, memory: Memory) -> Any:
        """An attribute: written or lifted state first, then what the archive holds."""
        path = (*target.path, name)
        for known in (memory.constants, memory.values):
            if path in known:
                return known[path]
        if path in self._slots:
            return getattr(self, self._slots[path])
        if path in memory.containers:
            return memory.containers[path]
        value = getattr(target.script, name)
        if isinstance(value, torch.Tensor):
            return self.literal(value)
        if isinstance(value, list | dict | tuple) and holds_tensor(value):
            return memory.containers.setdefault(path, self._container(path, value, memory))
        return Object(path, value) if isinstance(value, torch.jit.ScriptModule) or scripts.is_object(value) else value

    def _container(self, path: Path, value: Any, memory: Memory) -> Any:
        """A list, tuple or dict of tensors, those that came in as state in their places."""
        if isinstance(value, dict):
            return {key: self._container((*path, str(key)), held, memory) for key, held in value.items()}
        if isinstance(value, list | tuple):
            items = [self._container((*path, str(place)), held, memory) for place, held in enumerate(value)]
            return items if isinstance(value, list) else tuple(items)
        return memory.values.get(path, self.literal(value) if isinstance(value, torch.Tensor) else value)

    def _hold(self, path: Path, tensor: torch.Tensor) -> None:
        slot = "_".join(path)
        while hasattr(self, slot):
            slot += "_"
        self.register_buffer(slot, tensor.detach())
        self._slots[path] = slot

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """A constant of the graph, as a buffer that the tracer knows."""
        value: torch.Tensor = torch.ops.aten.lift_fresh_copy.default(tensor)
        return value


class _Run:
    """One execution of one graph."""

    def __init__(self, replay: Replay, memory: Memory, env: dict[str, Any]) -> None:
        self._replay = replay
        self.memory = memory
        self.env = env

    def block(self, block: Any) -> list[Any]:
        """Execute all nodes and return the values of the block's outputs."""
        for node in block.nodes():
            outputs = list(node.outputs())
            values = self._node(node)
            if len(outputs) == 1:
                self.env[outputs[0].debugName()] = values
            elif outputs:
                for output, value in zip(outputs, values or (), strict=True):
                    self.env[output.debugName()] = value
        return [self.env[value.debugName()] for value in block.outputs()]

    def _node(self, node: Any) -> Any:
        kind = node.kind()
        handler = _STRUCTURE.get(kind)
        if handler is not None:
            return handler(self, node)
        args = [self.env[value.debugName()] for value in node.inputs()]
        try:
            return self._computed(node, kind, args)
        except Unsupported as refusal:
            raise refusal.located(kind, line_of(node)) from None

    def _computed(self, node: Any, kind: str, args: list[Any]) -> Any:
        written_out = FUSED.get(kind) or registered().get(kind)
        if written_out is not None:
            return self._traced(node, written_out, args, {})
        plain = not any(holds_tensor(arg) for arg in args)
        if kind in ALWAYS and not (kind == "aten::__getitem__" and isinstance(args[0], torch.Tensor)):
            return ALWAYS[kind](*args)
        if kind in NUMERIC and (plain or (kind in ON_LISTS and isinstance(args[0], list))):
            return NUMERIC[kind](*args)
        operator = operator_of(node)
        if kind == "aten::to" and plain:
            return cast_number(operator, args)
        positional, keywords = bound(operator, args)
        return self._traced(node, operator, positional, keywords)

    def _traced(self, node: Any, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator under the source line that it came from; the exporter keeps it as the node's trace."""
        with fx_traceback.preserve_node_meta():
            fx_traceback.set_stack_trace([python_trace(str(node.sourceRange()))])
            try:
                return operator(*args, **kwargs)
            except (RuntimeError, AssertionError) as error:
                from convertkit.converters.pytorch.compat.shapes import is_of_unknown_size  # which imports sympy

                if not is_of_unknown_size(error):
                    raise
                refused = Unsupported("a size that values decide, where the operator has to know it", ways_out=_FIXED)
                raise refused from error

    # --- nodes that have no operator ---

    def constant(self, node: Any) -> Any:
        """``prim::Constant``; traces hold the integers of size arithmetic as tensors."""
        value = node.output().toIValue()
        if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.dim() == 0:
            return value.item()
        return self._replay.literal(value) if isinstance(value, torch.Tensor) else value

    def get_attribute(self, node: Any) -> Any:
        """``prim::GetAttr``."""
        (target,) = self._inputs(node)
        return self._replay.read(target, node.s("name"), self.memory)

    def set_attribute(self, node: Any) -> Any:
        """``prim::SetAttr``."""
        target, value = self._inputs(node)
        self.memory.write((*target.path, node.s("name")), value)
        return ()

    def call_method(self, node: Any) -> Any:
        """``prim::CallMethod`` that inlining left, because an interface hides the module."""
        target, *args = self._inputs(node)
        return self._replay._method(target, node.s("name"), args, {}, self.memory)

    def raise_exception(self, node: Any) -> Any:
        """``prim::RaiseException``."""
        raise ScriptRaised(" ".join(str(value) for value in self._inputs(node)))

    def list_construct(self, node: Any) -> list[Any]:
        """``prim::ListConstruct``."""
        return self._inputs(node)

    def tuple_construct(self, node: Any) -> Any:
        """``prim::TupleConstruct``, named ones too: their fields are known from the model's own result."""
        return tuple(self._inputs(node))

    def dict_construct(self, node: Any) -> dict[Any, Any]:
        """``prim::DictConstruct``: keys and values by turns."""
        values = self._inputs(node)
        return dict(zip(values[::2], values[1::2], strict=True))

    def unpack(self, node: Any) -> Any:
        """``prim::TupleUnpack``, ``prim::ListUnpack``."""
        (value,) = self._inputs(node)
        items = list(value)
        return items[0] if len(list(node.outputs())) == 1 else items

    def tuple_index(self, node: Any) -> Any:
        """``prim::TupleIndex``."""
        value, place = self._inputs(node)
        return value[place]

    def tuple_slice(self, node: Any) -> Any:
        """``prim::TupleSlice``."""
        (value,) = self._inputs(node)
        return tuple(value)[node.i("beg") : node.i("end")]

    def branch(self, node: Any) -> Any:
        """``prim::If``: decided where it can be, a branch of the graph where data decides."""
        (condition,) = self._inputs(node)
        then, otherwise = node.blocks()
        if not isinstance(condition, torch.Tensor):
            return _unwrapped(self.block(then if condition else otherwise), node)
        for block, other in ((then, otherwise), (otherwise, then)):
            if raises(block):  # what the model forbids cannot happen in a call that returns
                return _unwrapped(self.block(other), node)
        return _unwrapped(self._data_branch(node, condition, then, otherwise), node)

    def _data_branch(self, node: Any, condition: torch.Tensor, then: Any, otherwise: Any) -> list[Any]:
        if writes(then) or writes(otherwise):
            raise Unsupported("a branch that data decides writes an attribute").located("if", line_of(node))
        names = [name for name in free_names((then, otherwise)) if isinstance(self.env.get(name), torch.Tensor)]

        def arm(block: Any) -> Any:
            def compute(*tensors: torch.Tensor) -> tuple[Any, ...]:
                inner = _Run(self._replay, self.memory, {**self.env, **dict(zip(names, tensors, strict=True))})
                return tuple(as_tensor(value) for value in inner.block(block))

            return compute

        operands = tuple(self.env[name] for name in names)
        return list(torch.ops.higher_order.cond(condition, arm(then), arm(otherwise), operands))

    def loop(self, node: Any) -> Any:
        """``prim::Loop`` whose number of turns does not depend on data: unrolled."""
        trips, condition, *carried = self._inputs(node)
        (body,) = node.blocks()
        names = [value.debugName() for value in body.inputs()]
        turn = 0
        while turn < trips and _decided(condition, node):
            if turn >= _MAX_LOOP:
                raise Unsupported(f"a loop of more than {_MAX_LOOP} turns").located("loop", line_of(node))
            self.env.update(zip(names, [turn, *carried], strict=True))
            condition, *carried = self.block(body)
            turn += 1
        return _unwrapped(carried, node)

    def refused(self, node: Any) -> Any:
        """Constructs that have no meaning in a graph of tensors."""
        raise Unsupported(f"{node.kind()} has no counterpart in a graph of tensors").located(node.kind(), line_of(node))

    def _inputs(self, node: Any) -> list[Any]:
        return [self.env[value.debugName()] for value in node.inputs()]


_STRUCTURE = {
    "prim::Constant": _Run.constant,
    "prim::GetAttr": _Run.get_attribute,
    "prim::SetAttr": _Run.set_attribute,
    "prim::CallMethod": _Run.call_method,
    "prim::RaiseException": _Run.raise_exception,
    "prim::ListConstruct": _Run.list_construct,
    "prim::TupleConstruct": _Run.tuple_construct,
    "prim::DictConstruct": _Run.dict_construct,
    "prim::TupleUnpack": _Run.unpack,
    "prim::ListUnpack": _Run.unpack,
    "prim::TupleIndex": _Run.tuple_index,
    "prim::TupleSlice": _Run.tuple_slice,
    "prim::If": _Run.branch,
    "prim::Loop": _Run.loop,
    "prim::CreateObject": _Run.refused,
    "prim::fork": _Run.refused,
    "prim::PythonOp": _Run.refused,
}


def _decided(condition: Any, node: Any) -> bool:
    if isinstance(condition, torch.Tensor):
        raise Unsupported("a loop whose number of turns depends on data").located("loop", line_of(node))
    return bool(condition)


def _unwrapped(values: list[Any], node: Any) -> Any:
    return values[0] if len(list(node.outputs())) == 1 else values
