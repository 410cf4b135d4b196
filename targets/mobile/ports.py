"""Inputs and outputs as a typed API has them: identifiers, element types, sizes, and how integers stand for reals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Artifact, TensorSpec
from convertkit.errors import Unsupported

BYTES = {"float32": 4, "int32": 4, "int64": 8, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
"""Element types that the typed APIs have, with the bytes of an element."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output; ``place`` counts in the file's order.

    ``dtype`` is what the model takes, ``api`` what an app gives or gets: float32 where integers stand for real numbers,
    by ``scale`` and ``zero_point``.  ``variable`` is an identifier in Kotlin, Java and Swift.  ``shape`` is the file's.
    """

    name: str
    place: int
    variable: str
    dtype: str
    api: str
    shape: tuple[int, ...]
    scale: float | None
    zero_point: int
    is_state: bool
    spec: TensorSpec

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the model's own elements."""
        return self.count * BYTES[self.dtype]

    @property
    def element_bytes(self) -> int:
        return BYTES[self.dtype]

    @property
    def low(self) -> int:
        """The least integer of its type."""
        return int(np.iinfo(self.dtype).min)

    @property
    def high(self) -> int:
        """The greatest integer of its type."""
        return int(np.iinfo(self.dtype).max)

    @property
    def scale_text(self) -> str:
        """The scale as float32, in the fewest digits that give it again."""
        return str(np.float32(self.scale))

    @property
    def sentence(self) -> str:
        """What it holds, for a comment: one line of plain characters."""
        sizes = " x ".join(map(str, self.shape)) or "scalar"
        layout = {4: " (NHWC)", 3: " (NWC)"}.get(len(self.shape), "") if self.spec.perm else ""
        held = "" if self.scale is None else f", kept as {self.dtype}"
        return f"{plain(self.name)}: {self.api}, {sizes}{layout}{held}"

    def given(self, value: Array) -> Array:
        """What an app gives for a source-side array: the file's layout, the API's type, numbers for words."""
        value = self.spec.numbered(value)
        laid = value.transpose(self.spec.perm) if self.spec.perm else value
        return np.ascontiguousarray(laid).astype(self.api).reshape(self.shape)

    def got(self, value: Array) -> Array:
        """What an app gets where a runner returned ``value``, which is real and in the source's layout."""
        return self.given(value)


@dataclass(frozen=True, slots=True)
class Ports:
    """All of them, and which output becomes which input of the next call, both by place."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    carried: tuple[tuple[int, int], ...]

    @property
    def given(self) -> tuple[Port, ...]:
        """Inputs that an app gives."""
        return tuple(port for port in self.inputs if not port.is_state)

    @property
    def returned(self) -> tuple[Port, ...]:
        """Outputs that an app gets."""
        return tuple(port for port in self.outputs if not port.is_state)

    @property
    def states(self) -> tuple[Port, ...]:
        """Inputs that carry state from call to call."""
        return tuple(port for port in self.inputs if port.is_state)


def ports_of(artifact: Artifact, inputs: Sequence[str], outputs: Sequence[str], reserved: frozenset[str]) -> Ports:
    """The ports of an artifact whose file has its inputs and outputs in this order.

    ``reserved`` are words that are not identifiers.  ``Unsupported`` for element types and sizes that a typed API has
    no form for.
    """
    given = {spec.name: spec for spec in artifact.inputs}
    got = {spec.name: spec for spec in artifact.outputs}
    ins = _ports((given[name] for name in inputs), "input", reserved)
    outs = _ports((got[name] for name in outputs), "output", reserved)
    found = Ports(ins, outs, _carried(ins, outs))
    if not found.given:
        raise Unsupported("the model has no input, so that there is nothing that an app could give it")
    return found


def _ports(specs: Iterable[TensorSpec], role: str, reserved: frozenset[str]) -> tuple[Port, ...]:
    found, taken = list[Port](), set(reserved)
    for place, spec in enumerate(specs):
        variable = identifier(spec.name, role, place, taken)
        taken.add(variable)
        found.append(_port(spec, place, variable, role))
    return tuple(found)


def _port(spec: TensorSpec, place: int, variable: str, role: str) -> Port:
    subject = f"{role} {spec.name}"
    if spec.dtype not in BYTES:
        ways = ("--android-runtime litert or --ios-runtime litert, whose file gives places in the list of words",)
        ways_out = ways if spec.labels else ()
        raise Unsupported(f"the typed API has no arrays of {spec.dtype}", subject=subject, ways_out=ways_out)
    if any(isinstance(size, str) for size in spec.shape):
        raise Unsupported(
            "its size depends on the values of an input, and a typed API has fixed sizes", subject=subject
        )
    shape = tuple(int(size) for size in spec.shape)
    quantization = spec.quantization
    return Port(
        spec.name,
        place,
        variable,
        spec.dtype,
        spec.dtype if quantization is None else "float32",
        shape,
        None if quantization is None else quantization.scale,
        0 if quantization is None else quantization.zero_point,
        spec.is_state,
        spec,
    )


def _carried(inputs: Sequence[Port], outputs: Sequence[Port]) -> tuple[tuple[int, int], ...]:
    """Output and input places of state; both have to hold the same bytes for the same numbers."""
    nexts = {port.name.removeprefix(NEXT_STATE_PREFIX): port for port in outputs if port.is_state}
    found = []
    for port in inputs:
        if not port.is_state:
            continue
        source = nexts.get(port.name.removeprefix(STATE_PREFIX))
        if source is None:
            raise Unsupported("no output gives its next value", subject=f"input {port.name}")
        if (source.dtype, source.shape, source.scale, source.zero_point) != (
            port.dtype,
            port.shape,
            port.scale,
            port.zero_point,
        ):
            raise Unsupported(
                "its next value has another form, and the package hands it on as it is",
                subject=f"input {port.name}",
                ways_out=("--io-dtype float32",),
            )
        found.append((source.place, port.place))
    return tuple(found)


def identifier(name: str, role: str, place: int, taken: Iterable[str]) -> str:
    """``name`` in camelCase where that is an identifier of its own, else the role and the place."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    camel = "".join(word if at == 0 else word[:1].upper() + word[1:] for at, word in enumerate(words))
    camel = camel[:1].lower() + camel[1:]
    if not camel or camel[0].isdigit() or camel in taken:
        camel = f"{role}{place}"
    while camel in taken:
        camel += "Value"
    return camel


def plain(text: str) -> str:
    """A model's or a user's own text for a comment: one line of printable ASCII that ends no comment."""
    return re.sub(r"[^\x20-\x7e]+", "?", text).replace("*/", "* /").replace("/*", "/ *").replace("\\", "?")
