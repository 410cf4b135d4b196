"""What ONNX Runtime's execution providers would take of a model, by what they publish: nothing is run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import onnx_ir as ir

from convertkit.onnx.inspection import macs_of, with_shapes
from convertkit.onnx.load import load_own
from convertkit.operators import Left, ProviderShare


@dataclass(frozen=True, slots=True)
class Constants:
    """Values that are stored, or computed from such values when the model is loaded.

    ``real`` has also what DequantizeLinear makes of stored integers: ONNX Runtime leaves that node to a provider.
    """

    folded: frozenset[ir.Value]
    real: frozenset[ir.Value]


class Provider(Protocol):
    """An execution provider.

    ``source`` names the list that it publishes.
    """

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    def fault(self, node: ir.Node, constants: Constants) -> str:
        """Why it does not take ``node``, empty where it does as far as the list tells."""
        ...

    def unjudged(self, node: ir.Node) -> str:
        """A condition of the list for nodes like ``node`` that is not looked at, empty where there is none."""
        ...


@runtime_checkable
class AcceleratedTarget(Protocol):
    """A target that knows execution providers of ONNX Runtime."""

    def providers(self) -> tuple[Provider, ...]: ...


def provider_shares(path: Path, providers: Sequence[Provider]) -> tuple[ProviderShare, ...]:
    """One of each provider for the ONNX model at ``path``; bodies of If, Loop and Scan count as their node.

    What is computed from constants alone is not counted: ONNX Runtime computes it when it loads the model.
    """
    model = with_shapes(load_own(path))
    constants = constants_of(model.graph)
    nodes = [node for node in model.graph if not constants.folded.issuperset(node.outputs)]
    return tuple(_share(provider, nodes, constants) for provider in providers)


def constants_of(graph: ir.Graph) -> Constants:
    """In one pass, since nodes stand behind what they read."""
    stored = {value for value in graph.initializers.values() if value.const_value is not None}
    folded, real = set(stored), set(stored)
    for node in graph:
        for known in (folded, real):
            if node.op_type == "DequantizeLinear" and known is folded:
                continue
            inputs = [value for value in node.inputs if value is not None]
            if node.op_type == "Constant" or (inputs and all(value in known for value in inputs)):
                known.update(node.outputs)
    return Constants(frozenset(folded), frozenset(real))


def _share(provider: Provider, nodes: Sequence[ir.Node], constants: Constants) -> ProviderShare:
    faults = [provider.fault(node, constants) for node in nodes]
    taken = [node for node, fault in zip(nodes, faults, strict=True) if not fault]
    refused = [(node, fault) for node, fault in zip(nodes, faults, strict=True) if fault]
    reasons = {node.op_type: fault for node, fault in reversed(refused)}
    named = defaultdict[str, list[str]](list)
    for node, _ in refused:
        named[node.op_type].append(str(node.outputs[0].name))
    left = [
        Left(kind, len(names), names[0], reasons[kind], tuple(names))
        for kind, names in sorted(named.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]
    unjudged = dict.fromkeys(f"{node.op_type}: {told}" for node in taken if (told := provider.unjudged(node)))
    return ProviderShare(
        provider=provider.name,
        source=provider.source,
        nodes=len(taken),
        of_nodes=len(nodes),
        macs=sum(map(macs_of, taken)),
        of_macs=sum(map(macs_of, nodes)),
        parts=_parts(nodes, {id(node) for node in taken}),
        left=tuple(left),
        unjudged=tuple(unjudged),
    )


def _parts(nodes: Sequence[ir.Node], taken: set[int]) -> int:
    """Into how many parts ONNX Runtime cuts ``nodes``, sorted by what they read.

    A part holds all that can be computed before a node of the CPU is waited for.  Source of the rule:
    onnxruntime/core/providers/partitioning_utils.cc, CreateSupportedPartitionNodeGroups.
    """
    turns: dict[int, int] = {}
    found = set[int]()
    for node in nodes:
        mine = id(node) in taken
        before = [producer for value in node.inputs if value is not None and (producer := value.producer()) is not None]
        waits = [turns[id(each)] + (not mine and id(each) in taken) for each in before if id(each) in turns]
        turns[id(node)] = max(waits, default=0)
        if mine:
            found.add(turns[id(node)])
    return len(found)
