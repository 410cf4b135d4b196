"""Walks MLIR blocks and calls the handler of each operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from convertkit.converters.stablehlo.at_sizes import AtSizes
from convertkit.converters.stablehlo.builder import Builder, Turn
from convertkit.converters.stablehlo.mlir import is_complex, location, noted, text
from convertkit.converters.stablehlo.quantization import QUANTIZED_WAY_OUT, quantization_of
from convertkit.converters.stablehlo.registry import Entry, Handlers
from convertkit.converters.stablehlo.tensor import Complex, Operand
from convertkit.errors import Unsupported

_RETURNS = frozenset({"func.return", "stablehlo.return"})
_TAKES_QUANTIZED = frozenset(
    f"stablehlo.{name}"
    for name in ("uniform_quantize", "uniform_dequantize", "constant", "optimization_barrier", "composite")
)
_WAYS_OUT = ("express that operator differently in the model, or export the model to another format",)


class Interpreter:
    """Translates the operators of one module; see :class:`~.builder.Regions`."""

    def __init__(
        self, handlers: Handlers, functions: Mapping[str, Any], buffered: Collection[Any] | None = None
    ) -> None:
        self.turns: dict[Any, Turn] = {}
        self.at_sizes = AtSizes()
        self._buffered = buffered
        self._handlers = handlers
        self._functions = functions
        self._env: dict[Any, Operand] = {}
        self._calling: list[str] = []

    def collects(self, loop: Any) -> bool:
        """Whether a loop may collect rows of a dynamic size; not without ``buffered``, nor where it is one of these."""
        return self._buffered is not None and loop not in self._buffered

    def function(self, name: str) -> Any:
        """The entry block of a function of the module."""
        return self._functions[name].regions[0].blocks[0]

    def inline(self, b: Builder, block: Any, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        """Record the block's operators on the tape and return what it yields."""
        return self._block(b, block, operands, vectorized=False)

    def vectorized(self, b: Builder, block: Any, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        """The same with whole tensors in place of scalars; refuses operators that are not pointwise."""
        return self._block(b, block, operands, vectorized=True)

    def value(self, b: Builder, block: Any, operands: Sequence[Operand], wanted: Any) -> Operand:
        """One value of the block, over whole tensors, recording only what it needs."""
        for argument, operand in zip(block.arguments, operands, strict=True):
            self._env[argument] = operand
        self._demand(b, wanted, {op.operation for op in block.operations})
        return self._env[wanted]

    def known(self, value: Any) -> Operand:
        """What a value that stands before the operator at hand became."""
        return self._env[value]

    def _demand(self, b: Builder, wanted: Any, inside: set[Any]) -> None:
        owner = wanted.owner
        if owner not in inside:
            return
        for operand in owner.operands:
            self._demand(b, operand, inside)
        results = self._translate(b, owner.opview, owner.name, vectorized=True)
        for value, result in zip(owner.results, results, strict=True):
            self._env[value] = result

    def _block(self, b: Builder, block: Any, operands: Sequence[Operand], *, vectorized: bool) -> tuple[Operand, ...]:
        for argument, operand in zip(block.arguments, operands, strict=True):
            self._env[argument] = operand
        for op in block.operations:
            name = op.operation.name
            if name in _RETURNS:
                return tuple(self._env[value] for value in op.operation.operands)
            results = self._translate(b, op, name, vectorized=vectorized)
            for value, result in zip(op.operation.results, results, strict=True):
                self._env[value] = result
        return ()

    def _translate(self, b: Builder, op: Any, name: str, *, vectorized: bool) -> tuple[Operand, ...]:
        operands = [self._env[value] for value in op.operation.operands]
        place = location(op.operation)
        outer, b.origin = b.origin, noted(place)
        try:
            if name == "func.call":
                return self._called(b, text(op.attributes["callee"]), operands, vectorized=vectorized)
            entry = self._entry(op, name, vectorized=vectorized)
            return self._call(entry, b, op, operands)
        except Unsupported as refusal:
            raise refusal.located(name, place, _WAYS_OUT) from refusal
        finally:
            b.origin = outer

    def _called(self, b: Builder, name: str, operands: Sequence[Operand], *, vectorized: bool) -> tuple[Operand, ...]:
        if name in self._calling:
            raise Unsupported(f"the function {name} calls itself; ONNX has no recursion")
        self._calling.append(name)
        results = self._block(b, self.function(name), operands, vectorized=vectorized)
        self._calling.pop()
        return results

    def _entry(self, op: Any, name: str, *, vectorized: bool) -> Entry:
        values = (*op.operation.operands, *op.operation.results)
        has_complex = any(is_complex(value.type) for value in values)
        entry = self._handlers.find(name, has_complex)
        if entry is None:
            known = has_complex and self._handlers.find(name, False) is not None
            raise Unsupported(
                "complex numbers have no exact ONNX form here" if known else "no ONNX form of this operator is known"
            )
        _check_quantized(name, entry, values)
        if vectorized and not entry.pointwise:
            raise Unsupported("it stands in a reducer, which may only hold elementwise operators here")
        return entry

    def _call(self, entry: Entry, b: Builder, op: Any, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        if not entry.partwise or not any(isinstance(each, Complex) for each in operands):
            result = entry.handler(b, op, *operands)
            return result if isinstance(result, tuple) else (result,) if result is not None else ()
        real = entry.handler(b, op, *(each.re if isinstance(each, Complex) else each for each in operands))
        imaginary = entry.handler(b, op, *(each.im if isinstance(each, Complex) else each for each in operands))
        if isinstance(real, tuple):
            return tuple(Complex(re, im) for re, im in zip(real, imaginary, strict=True))
        return (Complex(real, imaginary),)


def _check_quantized(name: str, entry: Entry, values: Sequence[Any]) -> None:
    """Refuse arithmetic on the integers of quantized tensors; moving them is all that keeps their meaning."""
    kinds = [kind for kind in (quantization_of(value.type) for value in values) if kind is not None]
    if name in _TAKES_QUANTIZED or (entry.partwise and all(kind.agrees(kinds[0]) for kind in kinds)):
        return
    if kinds:
        raise Unsupported(f"it computes on quantized tensors, which has no exact ONNX form here; {QUANTIZED_WAY_OUT}")
