"""What all snippets share: quoted names, identifiers, element types and counts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convertkit.artifact import Dim

KEYWORDS = frozenset({"in", "is", "as", "for", "if", "else", "class", "val", "var", "let", "int", "float", "return"})


@dataclass(frozen=True, slots=True)
class PortCode:
    """One input or output for code: its place, its identifier, its quoted name, what is in it.

    ``shape`` has the sizes of an example, ``named`` the names of dynamic dimensions in the place of theirs.
    """

    place: int
    variable: str
    quoted: str
    dtype: str
    shape: tuple[int, ...]
    named: tuple[Dim, ...]
    is_dynamic: bool
    is_state: bool
    comment: str
    scale: float | None
    zero_point: int

    @property
    def count(self) -> int:
        """Elements of the example."""
        return math.prod(self.shape)

    @property
    def dims(self) -> str:
        return ", ".join(map(str, self.shape))


@dataclass(frozen=True, slots=True)
class Ports:
    """A file and its interface, for code."""

    file: str
    inputs: tuple[PortCode, ...]
    outputs: tuple[PortCode, ...]

    @classmethod
    def of(cls, file: str, interface: Mapping[str, Any]) -> Ports:
        """From what report.json says; every text of the model is quoted or made an identifier."""
        inputs = tuple(_port(place, each, "input") for place, each in enumerate(interface["inputs"]))
        outputs = tuple(_port(place, each, "output") for place, each in enumerate(interface["outputs"]))
        return cls(quoted(file), inputs, outputs)

    @property
    def states(self) -> tuple[PortCode, ...]:
        """Inputs that begin at the values of ``initial_state.npz``."""
        return tuple(port for port in self.inputs if port.is_state)


def quoted(text: str) -> str:
    """A string literal of Python, Swift and C++; Kotlin's has dollars to escape, too."""
    return json.dumps(text, ensure_ascii=False)


def kotlin_quoted(literal: str) -> str:
    """The same for Kotlin, where a dollar begins a template."""
    return literal.replace("$", "\\$")


def _port(place: int, port: Mapping[str, Any], role: str) -> PortCode:
    word = re.sub(r"\W+", "_", port["name"], flags=re.ASCII).strip("_").lower()
    plain = bool(word) and not word[0].isdigit() and word not in KEYWORDS
    quantization = port["quantization"] or {}
    return PortCode(
        place,
        f"{role}_{word}" if plain and word != role else f"{role}_{place}",
        quoted(port["name"]),
        port["dtype"],
        tuple(port["example"]),
        tuple(port["shape"]),
        bool(port["dynamic"]),
        port["is_state"],
        re.sub(r"[\r\n\u2028\u2029\\]+", " ", f"{port['name']}: {port['sentence']}"),
        quantization.get("scale"),
        quantization.get("zero_point", 0),
    )
