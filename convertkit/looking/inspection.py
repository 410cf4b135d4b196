"""``convertkit inspect``: what is in a model file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import ConvertKitError, MissingFramework
from convertkit.looking.opened import Opened, opened, size_of
from convertkit.looking.operators import operators_of
from convertkit.looking.tables import Shown, Table, count_text, share_text
from convertkit.operators import Operator, ProviderShare
from convertkit.text import size_text

if TYPE_CHECKING:
    from convertkit.looking.timing import Timed
    from convertkit.recipe import InputSpec

_MOST_ROWS = 40
_MOST_LEFT = 3
_NO_PARAMETERS = frozenset({"INT64", "BOOL", "STRING"})
"""Element types of shapes, axes and flags in ONNX."""
_LEAST_BYTES = 64
"""Axes and sizes are below: what has no more is not listed as a layer."""


@dataclass(frozen=True, slots=True, repr=False)
class Inspection(Shown):
    """What a model is.

    ``operators`` are those of the file, or of its ONNX where the format has none of its own (``graph`` says which).
    ``parameters`` counts the elements of its constants, without shapes, axes and flags.  ``metadata`` is what the file
    says about itself, ``made`` how it was delivered, None for a source.  ``timed`` is there where that was asked for,
    as is ``providers``: what ONNX Runtime's execution providers would take of its ONNX, by their lists.
    """

    path: str
    format: str
    size_bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[Operator, ...]
    graph: str
    parameters: int | None
    metadata: Mapping[str, str]
    made: Mapping[str, Any] | None
    timed: Timed | None
    notes: tuple[str, ...]
    providers: tuple[ProviderShare, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-adds of one call with every dynamic dimension 1."""
        return sum(each.macs for each in self.operators)

    @property
    def headline(self) -> str:
        """Format, size, and how much there is in it."""
        parts = [f"{self.path}: {self.format}, {size_text(self.size_bytes)}"]
        if self.operators:
            parts.append(f"{len(self.operators)} operators, {count_text(self.macs)} multiply-adds")
        if self.parameters is not None:
            parts.append(f"{count_text(self.parameters)} parameters")
        return ", ".join(parts)

    def tables(self) -> tuple[Table, ...]:
        """Interface, precision, operators, layers, metadata, times."""
        from convertkit.result import Interface

        ports = tuple(Interface(self.inputs, self.outputs).rows())
        found = [Table("interface", ("", "name", "dtype", "shape", ""), ports)]
        found += [self._precisions(), self._kinds(), self._layers()]
        said = tuple((key, " ".join(str(text).split())[:120]) for key, text in self.metadata.items())
        found.append(Table("metadata", ("", ""), said))
        if self.made is not None:
            found.append(Table("made by", ("", ""), tuple((key, str(value)) for key, value in self.made.items())))
        found += [self._providers(), self._left()]
        return (*found, *(() if self.timed is None else self.timed.tables()))

    def _providers(self) -> Table:
        rows = tuple(
            (
                each.provider,
                f"{each.nodes} of {each.of_nodes}",
                share_text(each.macs / each.of_macs) if each.of_macs else "",
                str(each.parts),
            )
            for each in self.providers
        )
        title = "ONNX Runtime's execution providers, by the lists that they publish; nothing was run"
        return Table(title, ("", "nodes", "multiply-adds", "parts"), rows, (1, 2, 3))

    def _left(self) -> Table:
        rows = tuple(
            (each.provider, left.operator, str(left.count), left.first, left.reason)
            for each in self.providers
            for left in each.left[:_MOST_LEFT]
        )
        return Table("left to the CPU", ("", "operator", "count", "first", "reason"), rows, (2,))

    def _precisions(self) -> Table:
        counts, macs, sizes = Counter[str](), Counter[str](), Counter[str]()
        for each in self.operators:
            name = each.precision or "whole numbers"
            counts[name] += 1
            macs[name] += each.macs
            sizes[name] += each.weight_bytes
        total = macs.total()
        rows = [
            (name, str(counts[name]), share_text(macs[name] / total) if total else "", size_text(sizes[name]))
            for name in sorted(counts, key=lambda name: (-macs[name], -counts[name], name))
        ]
        return Table("precision", ("", "operators", "multiply-adds", "weights"), tuple(rows), (1, 2, 3))

    def _kinds(self) -> Table:
        counted = Counter(each.kind for each in self.operators)
        rows = tuple(
            (kind, str(count)) for kind, count in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
        )
        return Table(f"operators of {self.graph}", ("", "count"), rows, (1,))

    def _layers(self) -> Table:
        heavy = [each for each in self.operators if each.macs or each.weight_bytes >= _LEAST_BYTES]
        ranked = sorted(heavy, key=lambda each: (-each.macs, -each.weight_bytes))[:_MOST_ROWS]
        kept = {id(each) for each in ranked}
        rows = [
            (each.name, each.kind, each.precision, count_text(each.macs), size_text(each.weight_bytes))
            for each in heavy
            if id(each) in kept
        ]
        title = "layers" if len(rows) == len(heavy) else f"the {len(rows)} largest of {len(heavy)} layers"
        return Table(title, ("name", "operator", "precision", "multiply-adds", "weights"), tuple(rows), (3, 4))

    def remarks(self) -> tuple[str, ...]:
        """What the source says about itself, and what could not be told."""
        return self.notes


def inspect(
    source: str | PathLike[str],
    *,
    time: bool = False,
    providers: bool = False,
    input: str | InputSpec | Sequence[str | InputSpec] = (),
    model: str | None = None,
    signature: str | None = None,
    trust: str | Iterable[str] = (),
    timeout: float | None = None,
) -> Inspection:
    """What is in a model: interface, operators, parameters, size, precision, metadata, how it was made.

    Raises what ``export`` raises where it cannot be opened.

    Args:
        source: a path, ``pkg.mod:callable`` or a delivered folder.
        time: measure how long a call takes, and each node where the runtime tells; of ONNX and TFLite files.
        providers: tell what ONNX Runtime's execution providers would take of its ONNX, by the lists that they publish.
        input: shapes that the file does not hold, as in ``export``.
        model: ``pkg.mod:factory`` of the module that a state_dict belongs to.
        signature: signature of a SavedModel or of a TFLite file.
        trust: code in the file that may be executed: ``pickle``, ``lambda``, ``pyfunc``.
        timeout: longest time for one call of a framework, in seconds.

    """
    how = {"input": input, "model": model, "signature": signature, "trust": trust, "timeout": timeout}
    with opened(fspath(source), **how) as found:
        timed = None
        if time:
            from convertkit.looking.timing import timed_alone

            timed = timed_alone(found)
        return inspected(found, timed, providers=providers)


def inspected(found: Opened, timed: Timed | None = None, *, providers: bool = False) -> Inspection:
    """What is in an open model."""
    operators: tuple[Operator, ...] = ()
    graph, notes, parameters = "", list[str](), None
    try:
        operators, graph = operators_of(found)
        parameters = _parameters(found)
    except MissingFramework:
        raise
    except ConvertKitError as refusal:
        if not operators:  # else it is a package that nothing turns into ONNX, whose parameters are not counted
            notes.append(f"its operators cannot be listed: {str(refusal).splitlines()[0]}")
    artifact = found.artifact
    return Inspection(
        path=found.given,
        format=artifact.format,
        size_bytes=size_of(artifact),
        inputs=artifact.inputs,
        outputs=artifact.outputs,
        operators=operators,
        graph=graph,
        parameters=parameters,
        metadata=_metadata(artifact),
        made=_made(found),
        timed=timed,
        notes=(*found.notes, *notes),
        providers=_provider_shares(found) if providers else (),
    )


def _provider_shares(found: Opened) -> tuple[ProviderShare, ...]:
    from convertkit.onnx.providers import AcceleratedTarget, provider_shares

    targets = [plugins.target(name) for name in plugins.target_names()]
    known = [each for target in targets if isinstance(target, AcceleratedTarget) for each in target.providers()]
    return provider_shares(found.onnx().path, known)


def _parameters(found: Opened) -> int:
    from convertkit.onnx.load import load_own

    model = load_own(found.onnx().path)
    graphs = (model.graph, *model.graph.subgraphs())
    stored = (value.const_value for graph in graphs for value in graph.initializers.values())
    return sum(each.size for each in stored if each is not None and each.dtype.name not in _NO_PARAMETERS)


def _metadata(artifact: Artifact) -> dict[str, str]:
    if artifact.format not in ("onnx", "onnxruntime", "tensorrt"):
        return {}
    import onnx

    proto = onnx.load_model(artifact.path, load_external_data=False)
    opsets = ", ".join(f"{each.domain or 'ai.onnx'} {each.version}" for each in proto.opset_import)
    producer = f"{proto.producer_name} {proto.producer_version}".strip()
    told = {"opset": opsets, "IR version": str(proto.ir_version), "producer": producer, "domain": proto.domain}
    told |= {"version": str(proto.model_version or ""), "description": proto.doc_string}
    told |= {each.key: each.value for each in proto.metadata_props}
    return {key: text for key, text in told.items() if text}


def _made(found: Opened) -> Mapping[str, Any] | None:
    if found.delivered is None:
        return None
    report = found.delivered.report
    source = report["source"]
    options = {name: value for name, value in report.get("options", {}).items() if value not in (None, False, "", [])}
    told = {
        "convertkit": report.get("convertkit", ""),
        "target": found.delivered.target,
        "precision": found.delivered.precision,
        "verified": "yes" if found.delivered.verified else "no",
        "source": f"{Path(str(source.get('path', ''))).name} ({source.get('format', '')})",
        "source sha256": source.get("sha256", ""),
        "command": report.get("command", ""),
        "steps": " -> ".join(str(step["stage"]) for step in report["steps"]),
        **({"options": options} if options and not report.get("command") else {}),
    }
    return {key: value for key, value in told.items() if value}
