"""Operators that torch itself does not have, by functions that other packages register (runs in the worker).

An entry point of the group ``convertkit.torch_operators`` is named after the operator
(``torchvision::roi_align``) and holds an annotated function of tensors, written with torch's own
operators, that computes exactly what the operator computes.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import torch

from convertkit.converters.pytorch.compat.overloads import name_of
from convertkit.converters.pytorch.model.failures import brief, innermost
from convertkit.converters.pytorch.model.provenance import python_trace, user_line
from convertkit.errors import Unsupported

GROUP = "convertkit.torch_operators"
_WAYS_OUT = (
    f"an entry point {GROUP} that computes it with torch's own operators (docs/how-to/pytorch.md)",
    "--model pkg.mod:factory, where importing pkg.mod registers it as made of torch's own (CompositeImplicitAutograd)",
)
_UNKNOWN = (
    re.compile(r"Unknown (?:builtin )?op: ([\w:.]+)"),
    re.compile(r"(?:No ONNX function found for|No decompositions registered for)[^<]*<OpOverload\(op='([\w.]+)'"),
    re.compile(r"operator ([\w]+::[\w]+) does not exist"),
    re.compile(r"Unsupported: ONNX export of operator (\w+), (?P<case>[^.]+)\. "),
    re.compile(r"Unsupported: ONNX export of operator ([\w:.]+)"),
)
"""The first group is the operator; ``case`` says which use of it torch's exporter does not translate."""


@cache
def registered() -> Mapping[str, Callable[..., Any]]:
    """Functions by operator name, defined as operators where torch does not know them yet."""
    found = {point.name: point.load() for point in entry_points(group=GROUP)}
    for name, function in found.items():
        namespace, _, operator = name.partition("::")
        if not hasattr(getattr(torch.ops, namespace), operator):
            schema = torch.library.infer_schema(function, mutates_args=())
            torch.library.define(name, schema)
            torch.library.impl(name, "CompositeImplicitAutograd", function)
    return found


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The registered functions by overload, as ``run_decompositions`` takes them."""
    return {_overload(name): function for name, function in registered().items()}


def _overload(name: str) -> Any:
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default


_TRANSLATING = re.compile(r"Error when translating node %(\w+) : .*?target=torch\.ops\.([\w.]+)\]")


def untranslated(error: BaseException, nodes: Callable[[], Iterable[Any]]) -> Unsupported | None:
    """What torch's exporter says of the node that it fails on, which it hides behind three other errors."""
    found = None
    while error.__cause__ is not None:
        error = error.__cause__
        found = _TRANSLATING.search(str(error)) or found
    if found is None:
        return None
    name, operator = found.groups()
    line = next((_line_of(node) for node in nodes() if node.name == name), "")
    namespace, _, rest = operator.partition(".")
    reason, ways_out = f"torch's exporter does not translate it here: {brief(error)}", tuple[str, ...]()
    if "SymbolicTensor" in str(error):
        reason = "an argument of it is a dynamic size, for which ONNX has a known number alone"
        ways_out = ("torch.export.export with that size fixed: not in dynamic_shapes",)
    return Unsupported(
        reason,
        subject=f"{namespace}::{rest.removesuffix('.default')}",
        location=line or _line(operator, nodes()),
        ways_out=ways_out,
    )


_EXECUTING = re.compile(r"[\w.]+\s+While executing %(\w+) : ")


def unformed(error: BaseException, nodes: Iterable[Any]) -> Any:
    """The node whose result's shape torch does not know, so that it takes no program apart; None for other errors."""
    cause = innermost(error)
    found = _EXECUTING.match(str(cause)) if type(cause).__name__ == "UnsupportedOperatorException" else None
    return next((node for node in nodes if found and node.name == found.group(1)), None)


def unknown_node(node: Any) -> Unsupported:
    """The refusal of a node whose operator nobody knows in ONNX."""
    return _unknown(name_of(node.target), _line_of(node))


def refusal(error: BaseException, nodes: Callable[[], Iterable[Any]] = tuple) -> Unsupported | None:
    """The sentence for an error that is about an unknown operator, None for any other.

    ``nodes`` of an exported program say which line of Python called it; an archive that is refused while
    it is read says which line of its own code.
    """
    texts = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        texts.append(str(error))
    for text in texts:
        for pattern in _UNKNOWN:
            found = pattern.search(text)
            if found is not None:
                name = found.group(1).rstrip(".")
                if case := found.groupdict().get("case"):
                    return Unsupported(f"torch's exporter translates it, but not {case}", subject=name)
                return _unknown(name, _line(name.replace("::", "."), nodes()) or _archive_line(text))
    return None


def _unknown(name: str, location: str) -> Unsupported:
    return Unsupported(
        "this operator has no counterpart in ONNX that convertkit knows",
        subject=name if "::" in name else name.replace(".", "::", 1),
        location=location,
        ways_out=_WAYS_OUT,
    )


def unknown_in(path: str) -> Unsupported | None:
    """The refusal of an exported program that torch cannot read for an operator, which it does not name."""
    with zipfile.ZipFile(path) as archive:
        contents = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")]
    for target, metadata in _nodes_in(contents):
        namespace, _, rest = target.removeprefix("torch.ops.").partition(".")
        operator = rest.partition(".")[0]
        if target.startswith("torch.ops.") and not hasattr(getattr(torch.ops, namespace), operator):
            return _unknown(f"{namespace}::{operator}", user_line(str(metadata.get("stack_trace", ""))))
    return None


def _nodes_in(contents: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Targets of a program's nodes, with what is noted of each; a graph may lie in a node of another."""
    waiting = list(contents)
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            if isinstance(value.get("target"), str) and isinstance(value.get("metadata"), dict):
                yield value["target"], value["metadata"]
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _line(operator: str, nodes: Iterable[Any]) -> str:
    for node in nodes:
        if node.op == "call_function" and str(node.target).startswith(operator):
            return _line_of(node)
    return ""


def _line_of(node: Any) -> str:
    return user_line(node.meta.get("stack_trace", "") or "")


def _archive_line(text: str) -> str:
    own = user_line(python_trace(text))
    found = re.search(r'File "(code/[^"]+)", line (\d+)', text)
    return own or (f"{found.group(1)}:{found.group(2)}" if found else "")
