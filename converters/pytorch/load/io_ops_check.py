"""TorchScript that would reach beyond its tensors: it can write and read files and call other machines.

``torch.save`` and ``torch.from_file`` are operators of TorchScript.  A method ``__setstate__`` runs as the archive
is loaded, everything else later, so what may reach outside is looked for in the code first and in the graph then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from convertkit.converters.pytorch.compat import scripts
from convertkit.converters.pytorch.model.provenance import python_trace, user_line
from convertkit.errors import SourceError

_OUTSIDE = frozenset({"aten::save", "aten::from_file", "prim::rpc_async", "prim::rpc_sync", "prim::rpc_remote"})
_SUSPECT = re.compile(rb"""\b(save|from_file)\b|\brpc_|\bgetattr\b(?!\s*\([^()"']*"\w+"\s*\))""")
"""The operators' names, and lookups of a name that is not written out."""
_AT_LOADING = re.compile(rb"\b__setstate__\b")


def is_suspect(code: bytes) -> bool:
    """Whether the code of an archive may call an operator that reaches outside; its graph tells whether it does."""
    return _SUSPECT.search(code) is not None


def check_code(code: bytes, file: str) -> None:
    """Raise ``SourceError`` for suspect code that runs as the archive is loaded."""
    if is_suspect(code) and _AT_LOADING.search(code):
        raise SourceError(f"{file} may read or write files as it is loaded, which no model needs; it is hostile")


def check_graph(module: Any, file: str) -> None:
    """Raise ``SourceError`` where ``forward`` calls an operator that reaches outside; for archives of suspect code."""
    for node in _nodes(module.forward.graph):
        if node.kind() in _OUTSIDE or node.kind() in ("prim::CallMethod", "prim::CallFunction"):
            line = user_line(python_trace(str(node.sourceRange())))
            where = f", in {line}" if line else ""
            raise SourceError(f"{file} calls {node.kind()}{where}, which reaches outside of the model; it is hostile")


def _nodes(graph: Any) -> Iterator[Any]:
    """Every node of a graph and of what it calls."""
    waiting = [scripts.inlined(graph)]
    while waiting:
        for node in waiting.pop().nodes():
            yield node
            waiting += node.blocks()
            if node.hasAttribute("Subgraph"):  # of prim::fork
                waiting.append(scripts.inlined(node.g("Subgraph")))
