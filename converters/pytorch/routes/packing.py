"""Scripts that pack sequences: what a packed sequence is, torch decides in Python that no exporter follows."""

from __future__ import annotations

from typing import Any

from convertkit.converters.pytorch.compat import scripts
from convertkit.converters.pytorch.model.provenance import python_trace, user_line
from convertkit.converters.pytorch.model.subject import Subject
from convertkit.errors import Unsupported

_PACK = frozenset({"pack_padded_sequence", "pack_sequence"})


def refuse_packing(subject: Subject) -> None:
    """Raise ``Unsupported`` with the line that packs; a trace has no such call, only the operators behind it."""
    if subject.kind != "torchscript":
        return
    for module in subject.module.modules():
        for graph in scripts.method_graphs(module):
            for node in graph.nodes():
                if node.kind() == "prim::CallFunction" and (name := _function(node)) in _PACK:
                    raise Unsupported(
                        "torch.jit.script keeps Python's own handling of packed sequences, which has no ONNX",
                        subject=name,
                        location=user_line(python_trace(str(node.sourceRange()))),
                        ways_out=("torch.jit.trace of the same module, whose packed sequences convert",),
                    )


def _function(node: Any) -> str:
    constant = next(node.inputs()).node()
    return str(constant.s("name")) if constant.hasAttribute("name") else ""
