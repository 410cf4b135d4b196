"""The typed Swift API of a package, and the test of its golden vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convertkit.parity.golden import Vector
from convertkit.targets.ios.coreml import Features
from convertkit.targets.ios.names import ModuleName
from convertkit.targets.ios.runtimes import AppleRuntime
from convertkit.targets.mobile.api import TypedApi
from convertkit.targets.mobile.deflated import DEFLATED, Packed
from convertkit.targets.mobile.golden import allowed
from convertkit.targets.mobile.pictures import Picture
from convertkit.targets.mobile.ports import Port
from convertkit.targets.mobile.rendering import rendered

_TEMPLATES = Path(__file__).with_name("templates")
_ELEMENTS = {
    "float32": "Float",
    "int8": "Int8",
    "uint8": "UInt8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "Bool",
}
"""Of the arrays that the API takes and returns, by element type."""


@dataclass(frozen=True, slots=True)
class SwiftApi:
    """Everything that the generated code speaks of."""

    module: ModuleName
    runtime: AppleRuntime
    typed: TypedApi
    packed: Packed | None = None
    features: Features | None = None

    @property
    def stem(self) -> str:
        """What the model's file in the package is called, without its suffix."""
        return f"{self.module.short}{self.runtime.tail}"

    @property
    def suffix(self) -> str:
        """What the name of the model's file in the package ends in."""
        return f"{self.runtime.suffix}{'' if self.packed is None else DEFLATED}"

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the package's resources."""
        short = self.module.short
        found = [f"{self.stem}{self.suffix}"]
        found += [f"{short}.labels.txt"] * (self.typed.labels is not None)
        found += [f"{short}.state"] * bool(self.typed.ports.states)
        return (*found, "PrivacyInfo.xcprivacy")

    def values(self) -> dict[str, object]:
        """What templates read."""
        return {
            **self.typed.values(self.module.text),
            "short": self.module.short,
            "stem": self.stem,
            "suffix": self.runtime.suffix[1:],
            "features": self.features,
            "packed": self.packed,
            "ending": DEFLATED,
            "library": self.runtime.library,
            "pod": self.runtime.library.is_pod,
            "resources": self.resources,
            "version": "1.0.0",
            "elements": _ELEMENTS,
            "parameters": self._taken,
            "arguments": self._handed,
            "put": _put,
            "got": _got,
            "declared": self._declared,
            "read": _read,
        }

    def _declared(self, port: Port) -> str:
        """A port as the runtime has it: of Core ML its own name and sizes."""
        name, sizes = port.name, port.shape
        if self.features is not None:
            name, sizes = self.features.names[name], self.features.shapes[name]
        shape = ", ".join(map(str, sizes))
        return f'Port(name: {quoted(name)}, type: "{port.dtype}", bytes: {port.bytes}, shape: [{shape}])'

    def _taken(self, medium: str) -> str:
        return ", ".join(f"{port.variable}: {self._type(port, medium)}" for port in self.typed.ports.given)

    def _type(self, port: Port, medium: str) -> str:
        if port is not self.typed.special(medium):
            return f"[{_ELEMENTS[port.api]}]"
        return "CGImage" if medium == "picture" else "[Int16]"

    def _handed(self, medium: str, replaced: str) -> str:
        special = self.typed.special(medium)
        given = self.typed.ports.given
        return ", ".join(f"{port.variable}: {replaced if port is special else port.variable}" for port in given)


def sources(api: SwiftApi) -> dict[str, str]:
    """The package's text files by their paths, but for the test."""
    name, values = api.module.text, api.values()
    templates = {"Buffers": "Buffers.swift", "Engine": api.runtime.engine, name: "Model.swift"}
    if api.packed is not None:
        templates["Packed"] = "Packed.swift"
    if api.typed.picture is not None:
        templates["Pixels"] = "Pixels.swift"
        values |= _of_picture(api.typed.picture)
    if api.typed.heard is not None:
        templates["Wav"] = "Wav.swift"
    made = {f"Sources/{name}/{file}.swift": rendered(_TEMPLATES, each, values) for file, each in templates.items()}
    if api.runtime.library.is_pod:
        return made | {f"{name}.podspec": rendered(_TEMPLATES, "Podspec", values)}
    return made | {"Package.swift": rendered(_TEMPLATES, "Package.swift", values)}


def _of_picture(picture: Picture) -> dict[str, object]:
    return {
        "support": picture.reach,
        "bleed": repr(picture.bleed),
        "mean": ", ".join(map(repr, picture.mean)),
        "std": ", ".join(map(repr, picture.std)),
    }


def golden_test(api: SwiftApi, vectors: Sequence[Vector], precision: str, share: float | None = None) -> str:
    """The XCTest, which reads its vectors from its own resources; ``share`` as :func:`allowed` takes it."""
    bounds = {port.variable: repr(allowed(port, vectors, precision, share)) for port in api.typed.ports.returned}
    return rendered(_TEMPLATES, "Tests.swift", {**api.values(), "vectors": len(vectors), "bounds": bounds})


def _put(port: Port) -> str:
    to = f'Self.inputs[{port.place}], "{port.variable}"'
    if port.scale is None:
        return f"try Buffers.data({port.variable}, {to})"
    numbers = f"scale: {port.scale_text}, zeroPoint: {port.zero_point}, as: {_ELEMENTS[port.dtype]}.self"
    return f"try Buffers.quantized({port.variable}, {to}, {numbers})"


def _got(port: Port) -> str:
    source = f"engine.outputs[{port.place}]"
    if port.scale is not None:
        zero = f"{_ELEMENTS[port.dtype]}(0)"
        return f"Buffers.real({source}, scale: {port.scale_text}, zeroPoint: {port.zero_point}, of: {zero})"
    return _array(port, source)


def _array(port: Port, source: str) -> str:
    return (
        f"Buffers.bools({source})" if port.api == "bool" else f"Buffers.array({source}, of: {_ELEMENTS[port.api]}(0))"
    )


def _read(port: Port, role: str) -> str:
    """The golden array of a port, in the test."""
    return _array(port, f'try golden("\\(vector)/{role}_{port.variable}")')


def quoted(text: str) -> str:
    """A string literal of Swift, whose escapes of code points have braces."""
    marks = {'"': '\\"', "\\": "\\\\"}
    return (
        '"' + "".join(marks.get(each, each if each.isprintable() else f"\\u{{{ord(each):x}}}") for each in text) + '"'
    )
