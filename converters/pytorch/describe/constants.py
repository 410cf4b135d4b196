"""Integers that a TorchScript model compares with: the values that a number argument may want."""

from __future__ import annotations

from typing import Any

from convertkit.converters.pytorch.compat import scripts
from convertkit.converters.pytorch.model.subject import Subject

_COMPARISONS = frozenset({"aten::eq", "aten::ne", "aten::__contains__"})
_MOST = 16


def compared_integers(subject: Subject) -> tuple[int, ...]:
    """Integer constants that ``forward`` compares something with, elements of constant lists included."""
    if subject.kind != "torchscript":
        return ()
    graph = scripts.inlined(subject.module.forward.graph)
    found: dict[int, None] = {}
    _collect(graph, found)
    for _, module in subject.module.named_modules():
        found.update(dict.fromkeys(_listed(module)))
    return tuple(sorted(found))[:_MOST]


def _collect(block: Any, found: dict[int, None]) -> None:
    for node in block.nodes():
        if node.kind() in _COMPARISONS:
            for value in node.inputs():
                made_by = value.node()
                if made_by.kind() == "prim::Constant" and isinstance(constant := value.toIValue(), int):
                    found[constant] = None
        for inner in node.blocks():
            _collect(inner, found)


def _listed(module: Any) -> list[int]:
    """Lists of integers among the module's attributes (``self.sample_rates = [8000, 16000]``)."""
    graph = module.forward.graph if hasattr(module, "forward") else None
    if graph is None:
        return []
    values: list[int] = []
    for node in graph.findAllNodes("prim::GetAttr", True):
        kind = str(node.output().type())
        if kind in ("int[]", "List[int]"):
            held = getattr(module, node.s("name"), [])
            values += [item for item in held if isinstance(item, int)]
    return values
