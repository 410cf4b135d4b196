"""Attributes of MXNet's operators, which are text: each is read as the type that its operator says, or refused."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from convertkit.errors import SourceError, Unsupported

_NO_MATTER = frozenset({
    "workspace", "cudnn_tune", "cudnn_off", "cudnn_algo_verbose", "cudnn_algo_fwd", "cudnn_algo_bwd_data",
    "cudnn_algo_bwd_filter", "momentum", "num_args", "ctx", "name", "sparse_grad", "grad_scale", "normalization",
    "ignore_label", "use_ignore", "out_grad", "smooth_alpha", "valid_thresh", "dynamic_mode",
})  # fmt: skip
"""What decides about training, or how fast something is computed."""


class Attributes:
    """Of one node; :meth:`check` refuses what nobody asked for, so that no attribute is forgotten."""

    def __init__(self, title: str, values: Mapping[str, str]) -> None:
        self.title = title
        self._values = {key: value for key, value in values.items() if not key.startswith("__")}
        self._read: set[str] = set()

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._literal(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number")
        return value

    def maybe(self, name: str) -> int | None:
        """A whole number or None."""
        return None if self._literal(name, "None") in (None, "None") else self.whole(name)

    def real(self, name: str, default: float | None = None) -> float:
        """A number."""
        value = self._literal(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, "a number")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """``True``, ``true`` or ``1``, and their opposites."""
        self._read.add(name)
        text = self._values.get(name, str(default)).lower()
        if text not in ("true", "false", "1", "0"):
            raise self._wrong(name, "true or false")
        return text in ("true", "1")

    def word(self, name: str, default: str) -> str:
        """Text."""
        self._read.add(name)
        return self._values.get(name, default)

    def ints(self, name: str, default: tuple[int, ...] | None = ()) -> tuple[int, ...]:
        """A tuple or list of whole numbers, or one alone; ``default`` also where it says None."""
        value = self._literal(name, default)
        if value is None or value == ():
            return default or ()
        found = (value,) if isinstance(value, int) else value
        if not isinstance(found, (tuple, list)) or any(isinstance(x, bool) or not isinstance(x, int) for x in found):
            raise self._wrong(name, "a tuple of whole numbers")
        return tuple(int(each) for each in found if isinstance(each, int))

    def bounds(self, name: str) -> tuple[int | None, ...]:
        """A tuple of whole numbers and Nones."""
        value = self._literal(name, ())
        found = (value,) if value is None or isinstance(value, int) else value
        if not isinstance(found, (tuple, list)) or any(x is not None and not isinstance(x, int) for x in found):
            raise self._wrong(name, "a tuple of whole numbers and Nones")
        return tuple(found)

    def refuse(self, name: str, *plain: str) -> None:
        """``Unsupported`` where ``name`` says anything but one of ``plain``."""
        value = self.word(name, plain[0])
        if value not in plain:
            raise Unsupported(f"{name}={value}; {' or '.join(plain)} is understood", subject=self.title)

    def check(self) -> None:
        """``Unsupported`` for an attribute that was not asked for."""
        for name in self._values:
            if name not in self._read and name not in _NO_MATTER:
                raise Unsupported(f"the attribute {name}={self._values[name]}", subject=self.title)

    def _literal(self, name: str, default: object) -> object:
        self._read.add(name)
        text = self._values.get(name)
        if text is None:
            if default is None:
                raise SourceError(f"{self.title} lacks the attribute {name}")
            return default
        try:
            return ast.literal_eval(text.replace("L", "")) if len(text) < 1000 else text
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text

    def _wrong(self, name: str, wanted: str) -> SourceError:
        return SourceError(f"{self.title}: the attribute {name} is {self._values.get(name)!r}, not {wanted}")
