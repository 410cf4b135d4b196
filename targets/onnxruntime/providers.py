"""The execution providers of ``providers.toml``: which nodes they take, by the lists that ONNX Runtime publishes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
import onnx_ir as ir

from convertkit.onnx.providers import Constants, Provider
from convertkit.onnx.specs import dtype_name

_UNJUDGED = "?"
_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


@dataclass(frozen=True, slots=True)
class ListedProvider:
    """A provider with the operators that it lists and their conditions; ``integers`` as in ``providers.toml``.

    ``bfloat16``: whether its list tells types; the others are about float32, float16 and integers.
    """

    name: str
    source: str
    operators: frozenset[str]
    conditions: Mapping[str, tuple[str, ...]]
    integers: str
    fixed_sizes: bool
    bfloat16: bool = False

    def fault(self, node: ir.Node, constants: Constants) -> str:
        """Why it does not take ``node``, empty where it does as far as the list tells."""
        if self.fixed_sizes and any(_is_dynamic(value) for value in (*node.inputs, *node.outputs)):
            return "a size is dynamic"
        if not self.bfloat16 and _is_short(node):
            return "its list does not name bfloat16"
        if self.integers == "QLinear" and node.op_type in (_Q, _DQ):
            taken = any(self._takes_between(each, constants) for each in _around(node))
            return "" if taken else "no operator between integers"
        if self._takes_between(node, constants):
            return ""
        key = _key(node)
        if key not in self.operators:
            return "not in its list"
        if not self.integers and _between_integers(node):
            return "its inputs are integers"
        if self.integers == "QLinear" and _between_integers(node):
            return "not between integers"
        return self._unmet(key, node, constants)

    def unjudged(self, node: ir.Node) -> str:
        """A condition of the list for nodes like ``node`` that is not looked at, empty where there is none."""
        conditions = self.conditions.get(_key(node), ())
        told = [each[1:] for each in conditions if each.startswith(_UNJUDGED)]
        if self.bfloat16 and _is_short(node) and not any(each.startswith(("types", "all")) for each in conditions):
            told.append("whether its kernel has bfloat16")
        return "; ".join(told)

    def _takes_between(self, node: ir.Node, constants: Constants) -> bool:
        """Whether it takes ``node`` together with the conversions around it, as one operator of integers."""
        if self.integers != "QLinear" or not _between_integers(node):
            return False
        names = [
            name
            for name in (f"QLinear{node.op_type}", f"com.microsoft.QLinear{node.op_type}")
            if name in self.operators
        ]
        return bool(names) and not self._unmet(node.op_type, node, constants)

    def _unmet(self, key: str, node: ir.Node, constants: Constants) -> str:
        """The first condition that ``node`` does not meet, in words."""
        for condition in self.conditions.get(key, ()):
            if not condition.startswith(_UNJUDGED) and not self._meets(node, condition, constants):
                return _told(condition)
        return ""

    def _meets(self, node: ir.Node, condition: str, constants: Constants) -> bool:
        name, equals, wanted = condition.partition(" = ")
        if equals:
            return not _has_attribute(node, name) or _attribute(node, name) in wanted.split()
        word, *rest = condition.split()
        if word == "constant":
            given = [node.inputs[int(each)] for each in rest if int(each) < len(node.inputs)]
            known = constants.real if self.integers else constants.folded
            return all(value is None or value in known for value in given)
        if word == "region":
            return not _is_cropped(node) or node.inputs[1] not in constants.folded
        return _CONDITIONS[word](node, rest)


@cache
def providers() -> tuple[Provider, ...]:
    """Those of ``providers.toml``, in its order."""
    table = tomllib.loads(Path(__file__).with_name("providers.toml").read_text(encoding="utf-8"))
    return tuple(
        ListedProvider(
            name=each["title"],
            source=each["source"],
            operators=frozenset((*each["operators"], *each.get("conditions", ()))),
            conditions={name: tuple(words) for name, words in each.get("conditions", {}).items()},
            integers=each.get("integers", ""),
            fixed_sizes=each.get("fixed_sizes", False),
            bfloat16=each.get("bfloat16", False),
        )
        for each in table.values()
    )


def _key(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _told(condition: str) -> str:
    word, *rest = condition.split()
    if word == "constant":
        return f"input {' or '.join(rest)} is computed"
    if word in ("types", "all"):
        return f"its type is not {', '.join(each for each in rest if each != 'types')}"
    if word == "version":
        return f"newer than the operator's version {rest[0]}"
    if word == "type":
        return f"the type of input {rest[0]} is not {', '.join(rest[1:])}"
    if word == "absent":
        return f"input {rest[0]} is given"
    if word == "blocks":
        return "blocks of 8 bits fail when they run"
    if word == "region":
        return "by a constant region its kernel computes other numbers"
    name, _, wanted = condition.partition(" = ")
    return f"needs {name} = {' or '.join(wanted.split())}" if wanted else f"needs {condition}"


def _is_dynamic(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and not value.shape.is_static()


def _is_short(node: ir.Node) -> bool:
    values = (value for value in (*node.inputs, *node.outputs) if value is not None)
    return any(value.dtype == ir.DataType.BFLOAT16 for value in values)


def _around(node: ir.Node) -> list[ir.Node]:
    """Whose conversion a node is: what reads a DequantizeLinear, what a QuantizeLinear reads."""
    if node.op_type == _DQ:
        return [use.node for value in node.outputs for use in value.uses()]
    return [producer for value in node.inputs[:1] if value is not None and (producer := value.producer()) is not None]


def _between_integers(node: ir.Node) -> bool:
    """Whether it reads data from a DequantizeLinear."""
    first = node.inputs[0] if node.inputs else None
    maker = None if first is None else first.producer()
    return maker is not None and maker.op_type == _DQ and node.op_type not in (_Q, _DQ)


def _attribute(node: ir.Node, name: str) -> str:
    """An attribute's value as text, ONNX's default where it is not given."""
    given = node.attributes.get(name)
    if given is not None:
        return str(given.value)
    known = _schema(node).attributes
    default = onnx.helper.get_attribute_value(known[name].default_value) if name in known else ""
    return default.decode() if isinstance(default, bytes) else str(default)


def _has_attribute(node: ir.Node, name: str) -> bool:
    """Whether it is one of the operator at the opset of its model: older ones do what is ONNX's default since."""
    return name in node.attributes or name in _schema(node).attributes


def _schema(node: ir.Node) -> onnx.defs.OpSchema:
    """What ONNX says about ``node`` at the opset of its model."""
    opsets = {} if node.graph is None else node.graph.opset_imports
    return onnx.defs.get_schema(node.op_type, opsets.get("") or onnx.defs.onnx_opset_version(), "")


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _has_space(node: ir.Node, ranks: frozenset[int]) -> bool:
    return bool(node.inputs) and _rank(node.inputs[0]) in ranks


def _is_last(node: ir.Node) -> bool:
    axis, rank = int(_attribute(node, "axis")), _rank(node.inputs[0])
    return axis == -1 or (rank is not None and axis == rank - 1)


def _is_given(node: ir.Node, place: str) -> bool:
    return int(place) < len(node.inputs) and node.inputs[int(place)] is not None


def _has_blocks_of_bytes(node: ir.Node) -> bool:
    integers = node.inputs[0] if node.op_type == _DQ else node.outputs[0]
    given = node.attributes.get("block_size")
    return bool(given and given.value) and integers is not None and integers.dtype in _BYTES


def _is_cropped(node: ir.Node) -> bool:
    return _attribute(node, "coordinate_transformation_mode") == "tf_crop_and_resize"


def _has_type(node: ir.Node, place: str, names: list[str]) -> bool:
    value = node.inputs[int(place)]
    return value is None or value.dtype is None or dtype_name(value.dtype) in names


def _has_types(node: ir.Node, names: list[str], most: int | None = 1) -> bool:
    given = [value.dtype for value in node.inputs[:most] if value is not None and value.dtype is not None]
    return all(dtype_name(each) in names for each in given)


_CONDITIONS: Mapping[str, Callable[[ir.Node, list[str]], bool]] = {
    "1d": lambda node, _: _has_space(node, frozenset({3, 4})),
    "2d": lambda node, _: _has_space(node, frozenset({4})),
    "rank": lambda node, rest: all(_rank(value) == int(rest[0]) for value in node.inputs[:2]),
    "last": lambda node, _: _is_last(node),
    "version": lambda node, rest: _schema(node).since_version <= int(rest[0]),
    "blocks": lambda node, _: not _has_blocks_of_bytes(node),
    "absent": lambda node, rest: not _is_given(node, rest[0]),
    "types": _has_types,
    "type": lambda node, rest: _has_type(node, rest[0], rest[1:]),
    "all": lambda node, names: _has_types(node, names[1:], None),
}
"""By the first word of a condition; the others are given."""
