"""Where a frozen graph begins: placeholders that nothing is given for, and nodes to begin at instead.

Imports TensorFlow's graphs, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from convertkit.errors import UsageError


def numbers_behind(placeholder: Any, results: Sequence[Any]) -> Any:
    """The first floating-point tensor at which the model can begin without ``placeholder``; None where there is none.

    All that the results compute from the placeholder has to go through that one: the samples of a sound that is read
    from a file are not enough where an operator behind them also reads the file's sample rate.
    """
    found = (tensor for tensor in _behind(placeholder) if tensor.dtype.is_floating)
    return next((each for each in found if placeholder.name not in _read(results, {each.name})), None)


def refuse_unfed(begins: Collection[str], results: Sequence[Any]) -> None:
    """Raise ``UsageError`` where the results also read a placeholder that is not among the named tensors."""
    for name, (tensor, reader) in _read(results, begins).items():
        if tensor.op.type != "Placeholder" or reader is None:
            continue
        behind = numbers_behind(tensor, results)
        way = f"\n  try   --input {example(behind)}: the model begins at that node" if behind is not None else ""
        place = name.removesuffix(":0")
        raise UsageError(f"node {reader.name!r} also reads input {place!r}, for which --input gives nothing{way}")


def example(tensor: Any) -> str:
    """What ``--input`` takes for a tensor: its own shape, that of images where it has none; ``N`` is dynamic."""
    sizes = ["N", 224, 224, 3] if tensor.shape.rank is None else tensor.shape.as_list()
    named = [f"D{axis}" if axis else "N" for axis in range(len(sizes))]
    shape = ",".join(str(letter if size is None else size) for size, letter in zip(sizes, named, strict=True))
    return f"{tensor.name.removesuffix(':0')}:{shape}"


def _behind(tensor: Any) -> Iterator[Any]:
    """What is computed from a tensor, the nearest first."""
    pending, seen = [tensor], set()
    while pending:
        for op in pending.pop(0).consumers():
            if op.name not in seen:
                seen.add(op.name)
                pending += op.outputs
                yield from op.outputs


def _read(results: Sequence[Any], begins: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """The tensors that results are computed from, as far as the beginnings, each with an operator that reads it."""
    pending: list[tuple[Any, Any]] = [(tensor, None) for tensor in results]
    found: dict[str, tuple[Any, Any]] = {}
    while pending:
        tensor, reader = pending.pop()
        if tensor.name in found or tensor.name in begins:
            continue
        found[tensor.name] = (tensor, reader)
        pending += [(each, tensor.op) for each in tensor.op.inputs]
    return found
