"""``capability.json``: of each node of the model, whether TensorRT's parser takes it, since when, and why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.providers import Constants
from convertkit.targets.tensorrt.parser import NEWEST, fault, parsers

_SOURCES = (
    "docs/operators.md of onnx-tensorrt for TensorRT 8.6, 10.0 and 10.15",
    "the parser of TensorRT-RTX 1.7",
)


@dataclass(frozen=True, slots=True)
class Capability:
    """One node.  ``since`` is the first release known to parse its operator, ``reason`` why it would not parse."""

    name: str
    operator: str
    supported: bool
    since: str | None
    rtx: bool
    reason: str


def capabilities(model: ir.Model, allowed: Collection[str] = (), release: str = NEWEST) -> tuple[Capability, ...]:
    """All nodes, those of bodies and functions among them, in the graph's order, to the parser of ``release``.

    Raises ``Unsupported`` for the first that does not parse and whose operator is not ``allowed``.
    """
    return tuple(_judged(node, frozenset(allowed), release) for node in _nodes(model))


def report(found: Collection[Capability]) -> dict[str, object]:
    """JSON-able: where the knowledge is from, what does not parse, and every node."""
    refused = [asdict(each) for each in found if not each.supported]
    return {"sources": list(_SOURCES), "unsupported": refused, "nodes": [asdict(each) for each in found]}


@dataclass(frozen=True, slots=True)
class ParserProvider:
    """ONNX Runtime's provider for TensorRT takes what TensorRT's parser takes."""

    name: str = "TensorRT"
    source: str = _SOURCES[0]

    def fault(self, node: ir.Node, constants: Constants) -> str:
        """Why the parser would not take ``node``, empty where it would."""
        return fault(node)

    def unjudged(self, node: ir.Node) -> str:
        """Nothing: what the parser restricts is looked at."""
        return ""


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def _judged(node: ir.Node, allowed: frozenset[str], release: str) -> Capability:
    known = parsers()
    reason = fault(node, release)
    if reason and node.op_type not in allowed:
        raise Unsupported(
            reason,
            subject=f"{node.name} ({node.op_type})",
            ways_out=(
                f"--tensorrt-allow {node.op_type}, where a plugin computes it",
                "--target onnxruntime, for Triton with --package triton",
            ),
        )
    return Capability(
        name=node.name or "",
        operator=node.op_type,
        supported=not reason,
        since=known.since.get(node.op_type) if not reason else None,
        rtx=not reason and node.op_type not in known.rtx_lacks,
        reason=reason,
    )
