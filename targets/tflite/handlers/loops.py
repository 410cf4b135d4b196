"""The WHILE behind Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.invented_sizes import INVENTED
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.collected import Collector, collector
from convertkit.targets.tflite.lowering import Lowering, Scope, captured_values, copied
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

_FOREVER = np.iinfo(np.int32).max
_UNNAMED = ("None", INVENTED)


@dataclass(frozen=True, slots=True)
class Counted:
    """When a loop ends: after ``limit`` turns (None: never by count) and once the condition is false."""

    limit: Tensor | None
    condition: Tensor | None


@dataclass(frozen=True, slots=True)
class Loop:
    """Lowers one loop body and the WHILE around it; ``scanned`` gives the body one row of each per turn."""

    b: Builder
    lowering: Lowering
    scope: Scope
    node: ir.Node
    body: ir.Graph
    scanned: tuple[Tensor, ...] = ()

    def run(self, counted: Counted, initial: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The carried values after the last turn, then what each turn returned, stacked."""
        b, limit = self.b, counted.limit
        known = None if limit is None or limit.constant is None else max(int(limit.constant.item()), 0)
        turns = None if known is None or known >= _FOREVER else known
        collectors = [collector(b, value, turns) for value in self._collected(len(initial))]
        may_stop = not _is_true(counted.condition) or self._may_stop()
        if turns == 0:
            return (*initial, *(each.stacked(b, each.before(b), b.ints([0]), may_stop=False) for each in collectors))
        outside = captured_values([self.body], self.lowering, self.scope)
        start = counted.condition if counted.condition is not None else b.constant(np.array(True))
        stop = b.constant(np.array(_FOREVER, np.int32)) if limit is None else self._scalar(_narrow(b, limit))
        first = [b.constant(np.array(0, np.int32)), stop, self._scalar(start), *initial]
        behind = [*self.scanned, *(self.lowering.value(value, self.scope) for value in outside)]
        held = [each.inside(f"{self.node.name}/collected{place}") for place, each in enumerate(collectors)]
        inner = [*self._inner(first, len(initial)), *chain(*held), *self._inner(behind, 0)]
        check = self._condition([Tensor(t.name, t.shape, t.dtype) for t in inner])
        run = self._turn(inner, len(initial), list(zip(collectors, held, strict=True)), outside)
        state = [*first, *chain(*(each.before(b) for each in collectors)), *behind]
        self.lowering.program.sized_late |= self._resizes(len(initial))
        results = b.while_(check, run, [self._computed(tensor) for tensor in state], inner)
        rest = iter(results[len(first) :])
        stacks = [
            each.stacked(b, [next(rest) for _ in tensors], results[0], may_stop=may_stop)
            for each, tensors in zip(collectors, held, strict=True)
        ]
        return (*results[3 : len(first)], *stacks)

    def _may_stop(self) -> bool:
        """Whether the body may return a false condition (a Scan's body returns none)."""
        if self.scanned or self.node.op_type == "Scan":
            return False
        value = self.body.outputs[0]
        producer = value.producer()
        while producer is not None and producer.op_type == "Identity" and producer.inputs[0] is not None:
            value = producer.inputs[0]
            producer = value.producer()
        if value.const_value is not None:
            return not bool(value.const_value.numpy().item())
        return value is not self.body.inputs[1]

    def _resizes(self, carried: int) -> bool:
        """Whether a turn may leave a carried value of another size."""
        before, after = (0, 0) if self.node.op_type == "Scan" else (2, 1)
        pairs = zip(self.body.inputs[before : before + carried], self.body.outputs[after:], strict=False)
        return any(one is not other and may_differ(one, other) for one, other in pairs)

    def _collected(self, carried: int) -> list[ir.Value]:
        first = carried if self.node.op_type == "Scan" else 1 + carried
        return list(self.body.outputs)[first:]

    def _inner(self, state: Sequence[Tensor], carried: int) -> list[Tensor]:
        """The body's inputs: sizes that change from turn to turn are dynamic."""
        inner = [Tensor(f"{self.node.name}/{tensor.name}", tensor.shape, tensor.dtype) for tensor in state]
        first = 0 if self.node.op_type == "Scan" else 1
        for place in range(carried):
            result = self.body.outputs[first + place]
            if result.shape is not None:
                sizes = tuple(size if isinstance(size, int) else DYNAMIC for size in result.shape)
                old = inner[3 + place]
                inner[3 + place] = Tensor(old.name, carried_shape(old.shape, sizes), old.dtype)
        return inner

    def _condition(self, inner: list[Tensor]) -> int:
        index = self.lowering.program.new_subgraph(f"{self.node.name}/condition")
        subgraph = self.lowering.program.subgraphs[index]
        subgraph.inputs = inner
        b = Builder(self.lowering.program, subgraph)
        b.prefix, b.origin = subgraph.name, self.b.origin
        subgraph.outputs = [b.logical_and(b.less(inner[0], inner[1]), inner[2])]
        return index

    def _turn(
        self,
        inner: list[Tensor],
        carried: int,
        collected: list[tuple[Collector, list[Tensor]]],
        outside: Sequence[ir.Value],
    ) -> int:
        """One turn: the body, the counter, and the rows that it collects."""
        index = self.lowering.program.new_subgraph(f"{self.node.name}/body")
        subgraph = self.lowering.program.subgraphs[index]
        subgraph.inputs = inner
        b = Builder(self.lowering.program, subgraph)
        b.prefix, b.origin = subgraph.name, self.b.origin
        values = inner[3 : 3 + carried]
        behind = inner[3 + carried + sum(len(held) for _, held in collected) :]
        scanned, captured = behind[: len(self.scanned)], behind[len(self.scanned) :]
        if self.node.op_type == "Scan":
            arguments = [*values, *(b.gather(tensor, inner[0], 0) for tensor in scanned)]
        else:
            arguments = [self._counter(b, inner[0]), inner[2], *values]
        scope = Scope(
            b, {**dict(zip(self.body.inputs, arguments, strict=True)), **dict(zip(outside, captured, strict=True))}
        )
        results = list(self.lowering.inlined(self.body, scope))
        going = inner[2] if self.node.op_type == "Scan" else self._scalar_in(b, results.pop(0))
        b.prefix = subgraph.name
        rows = [
            each.after(b, held, row, inner[0]) for (each, held), row in zip(collected, results[carried:], strict=True)
        ]
        count = b.add(inner[0], b.constant(np.array(1, np.int32)))
        outputs = [count, inner[1], going, *results[:carried], *chain(*rows), *scanned, *captured]
        subgraph.outputs = _distinct(b, outputs, inner)
        return index

    def _counter(self, b: Builder, count: Tensor) -> Tensor:
        """What the body sees: of one axis where tf2onnx has declared it so, as ONNX Runtime gives it, too."""
        wide, declared = b.cast(count, "int64"), self.body.inputs[0].shape
        return b.reshape(wide, (1,)) if declared is not None and len(declared) == 1 else wide

    def _scalar(self, x: Tensor) -> Tensor:
        return self._scalar_in(self.b, x)

    def _scalar_in(self, b: Builder, x: Tensor) -> Tensor:
        return x if x.rank == 0 else b.reshape(x, ())

    def _computed(self, tensor: Tensor) -> Tensor:
        """WHILE moves its inputs: a constant is copied first."""
        return copied(self.b, tensor) if tensor.constant is not None else tensor


def _is_true(condition: Tensor | None) -> bool:
    return condition is None or (condition.constant is not None and bool(condition.constant.all()))


def may_differ(one: ir.Value, other: ir.Value) -> bool:
    """Whether two values may have different sizes, as far as the model names those.

    Names that shape inference invents begin again in each body, and tell nothing.
    """
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return True
    sizes = [(str(a), str(b)) for a, b in zip(one.shape, other.shape, strict=True)]
    return any(a != b or a.startswith(_UNNAMED) for a, b in sizes)


def carried_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that both have, dynamic where they differ."""
    if len(first) != len(second):
        raise Unsupported(f"a value of rank {len(first)} that becomes one of rank {len(second)}")
    return tuple(a if a == b else DYNAMIC for a, b in zip(first, second, strict=True))


def _narrow(b: Builder, limit: Tensor) -> Tensor:
    """The int64 limit as int32; exporters write the largest int64 for "no limit", which a cast alone makes -1."""
    if limit.constant is not None:
        return b.constant(np.clip(limit.constant, -1, _FOREVER).astype(np.int32))
    return b.cast(b.maximum(b.minimum(limit, b.scalar(_FOREVER, limit)), b.scalar(-1, limit)), "int32")


def _distinct(b: Builder, outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Outputs that are tensors of their own, except an input that comes out where it went in."""
    seen: list[Tensor] = []
    for place, tensor in enumerate(outputs):
        own = tensor is inputs[place] or (tensor not in inputs and tensor not in seen and tensor.constant is None)
        seen.append(tensor if own else copied(b, tensor))
    return seen
