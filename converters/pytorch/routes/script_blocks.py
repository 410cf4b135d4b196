"""What the blocks of a TorchScript graph hold: names from outside, writes, exceptions, and the line of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convertkit.converters.pytorch.model.provenance import python_trace, user_line


def raises(block: Any) -> bool:
    """Whether the block ends in an exception."""
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def writes(block: Any) -> bool:
    """Whether anything in the block sets an attribute."""
    return any(
        node.kind() == "prim::SetAttr" or any(writes(inner) for inner in node.blocks()) for node in block.nodes()
    )


def free_names(blocks: Sequence[Any]) -> list[str]:
    """Names of the values that the blocks read."""
    names: dict[str, None] = {}
    for block in blocks:
        for node in block.nodes():
            names.update({value.debugName(): None for value in node.inputs()})
            names.update(dict.fromkeys(free_names(list(node.blocks()))))
        names.update({value.debugName(): None for value in block.outputs()})
    return list(names)


def line_of(node: Any) -> str:
    """The line of the source that the node was made from."""
    return user_line(python_trace(str(node.sourceRange())))
