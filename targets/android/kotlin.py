"""The typed Kotlin API of a package: what Kotlin and Java call, and the test of its golden vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convertkit.parity.golden import Vector
from convertkit.targets.android.names import PackageName
from convertkit.targets.android.runtimes import PhoneRuntime
from convertkit.targets.mobile.api import TypedApi
from convertkit.targets.mobile.deflated import DEFLATED, Packed
from convertkit.targets.mobile.golden import allowed
from convertkit.targets.mobile.pictures import Picture
from convertkit.targets.mobile.ports import Port
from convertkit.targets.mobile.rendering import rendered

_TEMPLATES = Path(__file__).with_name("templates")
ARRAYS = {
    "float32": "FloatArray",
    "int8": "ByteArray",
    "uint8": "ByteArray",
    "int16": "ShortArray",
    "int32": "IntArray",
    "int64": "LongArray",
    "bool": "BooleanArray",
}
"""What the API takes and returns, by element type; unsigned bytes are in Kotlin's signed ones."""
_RAW = dict.fromkeys(ARRAYS, "ByteBuffer")
_GET = {"float32": "floats", "int32": "ints", "int64": "longs", "int16": "shorts", "bool": "booleans"}
_READERS = {kind: _GET.get(kind, "bytes") for kind in ARRAYS}


@dataclass(frozen=True, slots=True)
class Api:
    """Everything that the generated code speaks of; ``in_pack`` says that apps get the model from an AI pack."""

    package: PackageName
    runtime: PhoneRuntime
    typed: TypedApi
    in_pack: bool
    packed: Packed | None = None

    @property
    def suffix(self) -> str:
        """What the name of the model's asset ends in."""
        return f"{self.runtime.suffix}{'' if self.packed is None else DEFLATED}"

    @property
    def asset(self) -> str:
        """The model among the assets of the AAR."""
        return f"{self.package.short}{self.suffix}"

    @property
    def label_asset(self) -> str:
        return f"{self.package.short}.labels.txt"

    @property
    def state_asset(self) -> str:
        return f"{self.package.short}.state"

    def values(self) -> dict[str, object]:
        """What templates read."""
        stored = ["start"] * bool(self.typed.ports.states), ["labels.split('\\n')"] * (self.typed.labels is not None)
        return {
            **self.typed.values(self.package.kotlin_class),
            "api": self,
            "package": self.package.text,
            "asset": f"model/{self.asset}" if self.in_pack else self.asset,
            "own_asset": self.asset,
            "label_asset": self.label_asset,
            "state_asset": self.state_asset,
            "constructed": ", ".join(["engine", *stored[0], *stored[1]]),
            "arrays": ARRAYS,
            "raw": _RAW,
            "parameters": self._taken,
            "arguments": self._handed,
            "put": _put,
            "got": _got,
            "declared": _declared,
        }

    def _taken(self, types: Mapping[str, str], medium: str = "") -> str:
        return ", ".join(f"{port.variable}: {self._type(port, types, medium)}" for port in self.typed.ports.given)

    def _type(self, port: Port, types: Mapping[str, str], medium: str) -> str:
        if port is not self.typed.special(medium):
            return types[port.api]
        return "Bitmap" if medium == "picture" else "ShortArray"

    def _handed(self, medium: str, replaced: str) -> str:
        special = self.typed.special(medium)
        return ", ".join(replaced if port is special else port.variable for port in self.typed.ports.given)


def sources(api: Api) -> dict[str, str]:
    """The API's files by their names."""
    values = api.values()
    name = api.package.kotlin_class
    templates = {"Buffers.kt": "Buffers.kt", "Engine.kt": api.runtime.engine}
    templates |= {f"{name}.kt": "Model.kt", f"{name}Coroutines.kt": "Coroutines.kt"}
    if api.packed is not None:
        templates["Packed.kt"] = "Packed.kt"
    if api.typed.picture is not None:
        templates["Pixels.kt"] = "Pixels.kt"
        values |= _of_picture(api.typed.picture)
    if api.typed.heard is not None:
        templates["Wav.kt"] = "Wav.kt"
    return {file: rendered(_TEMPLATES, template, values) for file, template in sorted(templates.items())}


def _of_picture(picture: Picture) -> dict[str, object]:
    return {
        "support": picture.reach,
        "bleed": repr(picture.bleed),
        "mean": ", ".join(f"{number!r}f" for number in picture.mean),
        "std": ", ".join(f"{number!r}f" for number in picture.std),
    }


def golden_test(api: Api, vectors: Sequence[Vector], precision: str) -> str:
    """The instrumented test, which reads its vectors from its own assets."""
    bounds = {port.variable: repr(allowed(port, vectors, precision)) for port in api.typed.ports.returned}
    values = {**api.values(), "vectors": len(vectors), "bounds": bounds, "readers": _READERS}
    return rendered(_TEMPLATES, "GoldenTest.kt", values)


def _put(port: Port) -> str:
    to = f'engine.inputs[{port.place}], "{port.variable}"'
    if port.scale is None:
        return f"Buffers.put({port.variable}, {to})"
    numbers = f"{port.scale_text}f, {port.zero_point}, {port.low}, {port.high}, {port.element_bytes}"
    return f"Buffers.quantize({port.variable}, {to}, {numbers})"


def _got(port: Port) -> str:
    source = f"engine.outputs[{port.place}]"
    if port.scale is None:
        return f"Buffers.{_GET.get(port.dtype, 'bytes')}({source})"
    return f"Buffers.dequantize({source}, {port.scale_text}f, {port.zero_point}, {port.low}, {port.element_bytes})"


def _declared(port: Port) -> str:
    sizes = "".join(f", {size}" for size in port.shape)
    return f'Port({quoted(port.name)}, "{port.dtype}", {port.bytes}{sizes})'


def quoted(text: str) -> str:
    """A string literal of Kotlin and Java, where a dollar begins a template."""
    return json.dumps(text).replace("$", "\\$")
