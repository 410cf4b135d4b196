"""Results as JSON and arrays, so that a store holds nothing that is executed when it is read.

JSON's own scalars and lists stand for themselves; everything else is an object with one key, ``$kind``.  A class is
written by its name and read only where the result's class has it somewhere in its hints.
"""

from __future__ import annotations

import base64
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

Json: TypeAlias = Any
Classes = Mapping[str, type[Any]]


def encoded(value: object, kind: type[Any], placed: Callable[[Path], Json]) -> tuple[Json, dict[str, Array]]:
    """``value`` as JSON, and its arrays by the names that the JSON calls them, each of a dtype that npy knows.

    ``placed`` says how a path is written.  Raises ``TypeError`` for a class that the hints of ``kind`` do not have, and
    for what has no meaning elsewhere, such as a function.
    """
    encoder = _Encoder(classes(kind), placed)
    return encoder.json(value), encoder.arrays


def decoded(json: Json, arrays: Mapping[str, Array], kind: type[Any], path: Callable[[Json], Path]) -> Any:
    """The value again; ``ValueError`` or ``LookupError`` where that cannot be.

    ``path`` reads what ``placed`` wrote.
    """
    return _Decoder(classes(kind), arrays, path).value(json)


def classes(kind: type[Any]) -> Classes:
    """The dataclasses and enums that the hints of ``kind`` lead to, by name; itself, too."""
    found: dict[str, type[Any]] = {}
    waiting: list[Any] = [kind]
    while waiting:
        each = waiting.pop()
        waiting += typing.get_args(each)
        origin = typing.get_origin(each)
        if origin is not None:
            waiting.append(origin)
        if isinstance(each, type) and _name(each) not in found and (is_dataclass(each) or issubclass(each, Enum)):
            found[_name(each)] = each
            if is_dataclass(each):
                waiting += _hints(each)
    return found


def paths_in(value: object) -> Iterator[Path]:
    """Every path that a result refers to."""
    if isinstance(value, Path):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from paths_in(getattr(value, field.name))
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from paths_in(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from paths_in(name)
            yield from paths_in(each)


def _hints(kind: type[Any]) -> list[Any]:
    """Hints of a class's fields; what is imported for type checkers alone is left out."""
    module = vars(sys.modules[kind.__module__])
    found: list[Any] = []
    for field in fields(kind):
        holder = types.SimpleNamespace(__annotations__={field.name: field.type})
        try:
            found += typing.get_type_hints(holder, globalns=module).values()
        except NameError:
            continue
    return found


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


class _Encoder:
    def __init__(self, known: Classes, placed: Callable[[Path], Json]) -> None:
        self._known = known
        self._placed = placed
        self.arrays: dict[str, Array] = {}

    def json(self, value: object) -> Json:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if type(value) is list:
            return [self.json(each) for each in value]
        if type(value) is tuple:
            return {"$tuple": [self.json(each) for each in value]}
        if isinstance(value, Path):
            return {"$path": self._placed(value)}
        return self._tagged(value)

    def _tagged(self, value: object) -> Json:
        if isinstance(value, Enum):
            return {"$enum": [self._class(value), value.name]}
        if is_dataclass(value) and not isinstance(value, type):
            parts = {field.name: self.json(getattr(value, field.name)) for field in fields(value) if field.init}
            return {"$class": [self._class(value), parts]}
        if type(value) is dict or type(value) is types.MappingProxyType:
            tag = "$dict" if type(value) is dict else "$mapping"
            return {tag: [[self.json(name), self.json(each)] for name, each in value.items()]}
        if type(value) is frozenset or type(value) is set:
            return {f"${type(value).__name__}": sorted((self.json(each) for each in value), key=repr)}
        if type(value) is bytes:
            return {"$bytes": base64.b64encode(value).decode()}
        return self._array(value)

    def _class(self, value: object) -> str:
        name = _name(type(value))
        if self._known.get(name) is not type(value):
            raise TypeError(f"{type(value).__qualname__} is not among the classes that the result's hints name")
        return name

    def _array(self, value: object) -> Json:
        import numpy as np

        if not isinstance(value, np.ndarray | np.generic):
            raise TypeError(f"a {type(value).__qualname__} cannot be kept in a store")
        array = np.asarray(value)
        tag = "$array" if isinstance(value, np.ndarray) else "$scalar"
        if array.dtype.kind in "OT":
            items = array.ravel().tolist()
            if not all(type(each) is str for each in items):
                raise TypeError("an array of Python objects that are not all strings cannot be kept in a store")
            return {tag: [array.dtype.char, list(array.shape), items]}
        if array.dtype.hasobject:
            raise TypeError("a structured array with Python objects cannot be kept in a store")
        name = f"a{len(self.arrays)}"
        foreign = _is_foreign(array.dtype)
        self.arrays[name] = np.frombuffer(array.tobytes(), np.uint8) if foreign else array
        return {tag: [name, array.dtype.name, list(array.shape)] if foreign else [name]}


class _Decoder:
    def __init__(self, known: Classes, arrays: Mapping[str, Array], path: Callable[[Json], Path]) -> None:
        self._known = known
        self._arrays = arrays
        self._readers: Mapping[str, Callable[[Any], Any]] = {
            "$array": self._array,
            "$bytes": base64.b64decode,
            "$class": self._class,
            "$dict": self._dict,
            "$enum": self._enum,
            "$float": float,
            "$frozenset": lambda held: frozenset(self._tuple(held)),
            "$mapping": lambda held: types.MappingProxyType(self._dict(held)),
            "$path": path,
            "$scalar": lambda held: self._array(held)[()],
            "$set": lambda held: set(self._tuple(held)),
            "$tuple": self._tuple,
        }

    def value(self, json: Json) -> Any:
        if isinstance(json, list):
            return [self.value(each) for each in json]
        if not isinstance(json, dict):
            return json
        ((tag, held),) = json.items()
        return self._readers[tag](held)

    def _tuple(self, held: list[Json]) -> tuple[Any, ...]:
        return tuple(self.value(each) for each in held)

    def _dict(self, held: list[list[Json]]) -> dict[Any, Any]:
        return {self.value(name): self.value(each) for name, each in held}

    def _enum(self, held: list[str]) -> Any:
        return self._known[held[0]][held[1]]

    def _class(self, held: list[Any]) -> Any:
        name, parts = held
        return self._known[name](**{part: self.value(each) for part, each in parts.items()})

    def _array(self, held: list[Any]) -> Array:
        import numpy as np

        if held[0] in ("O", "T"):
            char, shape, items = held
            kind = np.dtype(object) if char == "O" else np.dtypes.StringDType()
            return np.array(items, kind).reshape(shape)
        if len(held) == 1:
            return self._arrays[held[0]]
        import ml_dtypes

        name, dtype, shape = held
        return np.frombuffer(self._arrays[name].tobytes(), np.dtype(getattr(ml_dtypes, dtype))).reshape(shape).copy()


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    """Whether another library has added this dtype to NumPy, as ml_dtypes does bfloat16: npy files do not name it."""
    return dtype.isbuiltin == 2
