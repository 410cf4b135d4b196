"""What a model computes with, operator by operator: signs of training mode, and of numbers drawn at random.

A file keeps the mode in which it was made: a trace and an exported program hold ``training=True`` as a constant, which
``eval()`` no longer reaches.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from convertkit.converters.pytorch.compat import overloads, scripts
from convertkit.converters.pytorch.describe.changes import changed_attributes
from convertkit.converters.pytorch.model.provenance import python_trace, user_line
from convertkit.converters.pytorch.model.subject import Subject
from convertkit.errors import Unsupported

_UNKNOWN = object()
"""An argument that is computed."""
_MODES = ("train", "training")
_RATES = ("p", "dropout", "dropout_p")
_EVAL = "model.eval() before torch.jit.trace or torch.export.export"


@dataclass(frozen=True, slots=True)
class Called:
    """An operator that the model calls, its arguments as far as they are constants, and the user's line."""

    operator: Any
    arguments: Mapping[str, Any]
    location: str
    function: str = ""
    """What the user called, where that is known and has called the operator in turn."""

    @property
    def name(self) -> str:
        """As torch's schemas write it: ``aten::dropout``."""
        return self.function or overloads.name_of(self.operator)

    @property
    def is_training(self) -> bool:
        return any(self.arguments.get(name) is True for name in _MODES)

    @property
    def forgets_statistics(self) -> bool:
        """Whether a norm that holds running statistics computes with those of the batch."""
        return self.is_training and self.arguments.get("running_mean") is not None

    @property
    def draws(self) -> bool:
        """Whether the result may depend on random numbers."""
        if torch.Tag.nondeterministic_seeded not in self.operator.tags:
            return False
        if any(name in self.arguments for name in _MODES) and not self.is_training:
            return False
        return not any(self.arguments.get(name) == 0 for name in _RATES)


def refuse_training(subject: Subject) -> None:
    """Raise ``Unsupported`` where a file's norms use the batch's own statistics, as they do in training."""
    for call in _captured(subject):
        if call.forgets_statistics:
            raise Unsupported(
                "the model was captured in training mode: it normalizes with the statistics of each batch, not with"
                " those that it holds",
                subject=call.name,
                location=call.location,
                ways_out=(_EVAL, "None as running statistics, where those of the batch are meant"),
            )


def drawn(subject: Subject, run: Callable[[], object]) -> Unsupported:
    """The refusal of a model whose results vary from call to call; ``run`` calls it."""
    calls = _captured(subject) if subject.kind in ("torchscript", "pt2") else _watched(run)
    call = next((call for call in calls if call.draws), None)
    if call is None:
        return _varying(subject, run)
    if call.is_training:
        captured = "" if call.function else "the model was captured in training mode, or "
        return Unsupported(
            f"{captured or 'the model '}calls this with training=True: it drops values at random",
            subject=call.name,
            location=call.location,
            ways_out=(
                *((_EVAL,) if captured else ()),
                "training=self.training, where forward calls a function of torch.nn.functional",
            ),
        )
    return Unsupported(
        "the model draws random numbers, so no two calls agree and nothing can be verified",
        subject=call.name,
        location=call.location,
        ways_out=("the random tensor as an input of forward", "F.dropout(…, training=self.training), where it is that"),
    )


def _varying(subject: Subject, run: Callable[[], object]) -> Unsupported:
    """The refusal of a model that remembers its calls where nobody can see it, or in what no input can stand for."""
    told = "the model gives a different result in every call, so nothing can be verified"
    changed = () if subject.kind == "torchscript" else changed_attributes(subject.module, run)
    if not changed:
        return Unsupported(told)
    return Unsupported(
        f"{told}: it changes {', '.join(changed)}, which cannot become an input",
        ways_out=("state as attributes that hold tensors and numbers, alone or in lists, tuples and dicts",),
    )


def _captured(subject: Subject) -> Iterator[Called]:
    """The operators that a file holds."""
    if subject.program is not None:
        for node in subject.program.graph.nodes:
            if node.op == "call_function" and overloads.is_overload(node.target):
                given = {place: _constant(arg) for place, arg in enumerate(node.args)}
                given |= {name: _constant(arg) for name, arg in node.kwargs.items()}
                yield _called(node.target, given, user_line(node.meta.get("stack_trace", "") or ""))
    elif subject.kind == "torchscript":
        yield from _of_block(scripts.inlined(subject.module.forward.graph))


def _of_block(block: Any) -> Iterator[Called]:
    for node in block.nodes():
        if node.kind().startswith("aten::") and (operator := _operator(node)) is not None:
            given = {place: _value(value) for place, value in enumerate(node.inputs())}
            yield _called(operator, given, user_line(python_trace(str(node.sourceRange()))))
        for inner in node.blocks():
            yield from _of_block(inner)


def _operator(node: Any) -> Any:
    """The overload of ``torch.ops`` that a node calls, None for those on Python's values."""
    schema = scripts.schema_of(node)
    if schema is None:
        return None
    packet = getattr(torch.ops.aten, node.kind().removeprefix("aten::"), None)
    return None if packet is None else getattr(packet, schema.overload_name or "default", None)


def _called(operator: Any, given: Mapping[Any, Any], location: str) -> Called:
    """``given`` has arguments by place and by name; what is missing has its default."""
    arguments = {}
    for place, argument in enumerate(overloads.arguments_of(operator)):
        default = argument.default_value if argument.has_default_value() else _UNKNOWN
        arguments[argument.name] = given.get(argument.name, given.get(place, default))
    return Called(operator, arguments, location)


def _constant(value: Any) -> Any:
    return _UNKNOWN if isinstance(value, torch.fx.Node) else value


def _value(value: Any) -> Any:
    return value.toIValue() if value.node().kind() == "prim::Constant" else _UNKNOWN


class _Watch(overloads.TorchDispatchMode):  # type: ignore[misc]
    """Writes down which operators run, and from which line of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Called] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {**dict(enumerate(args)), **(kwargs or {})}
        call = _called(func, given, "")
        if call.draws:
            self.calls.append(replace(_asked(call), location=user_line("".join(traceback.format_stack()))))
        return func(*args, **(kwargs or {}))


def _asked(call: Called) -> Called:
    """The call as the function of torch.nn.functional that made it, where one did: dropout is ``bernoulli_`` inside."""
    frames = (frame for frame, _ in traceback.walk_stack(None) if frame.f_code.co_filename == functional.__file__)
    frame = next((each for each in frames if "training" in each.f_locals), None)
    if frame is None:
        return call
    arguments = {**call.arguments, "training": frame.f_locals["training"]}
    return replace(call, arguments=arguments, function=f"aten::{frame.f_code.co_name}")


def _watched(run: Callable[[], object]) -> list[Called]:
    watch = _Watch()
    with watch:
        run()
    return watch.calls
