"""Where each key of a TOML text stands; the standard library's parser tells it of errors alone."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect
from collections.abc import Mapping

Keys = tuple[str | int, ...]
"""What leads from the whole of a text to a value: names of tables and keys, numbers within arrays."""

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\#[^\n]*)"
    r'|(?P<text>"""(?:[^\\]|\\.)*?"""{1,3}(?!")|\'\'\'.*?\'\'\'\'{0,2}(?!\')|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\')'
    r"|(?P<mark>[\[\]{}=,\n.])"
    r"|(?P<word>[^\s\[\]{}=,.\"'#]+)",
    re.DOTALL,
)


def key_lines(text: str) -> Mapping[Keys, int]:
    """The line, from 1, of each key, table and array element of a text that ``tomllib`` reads."""
    return _Lines(text).read()


class _Lines:
    """Reads tokens one after another; the text is valid, so that only their order matters."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]
        tokens = [(found.group(), found.start()) for found in _TOKEN.finditer(text) if found.lastgroup != "blank"]
        self._tokens = [*tokens, ("\n", len(text))]
        self._at = 0
        self._lines: dict[Keys, int] = {}
        self._tables: dict[Keys, int] = {}
        """How many elements each array of tables has so far."""

    def read(self) -> Mapping[Keys, int]:
        table: Keys = ()
        while self._at < len(self._tokens):
            if self._next == "[":
                table = self._header()
            elif self._next == "\n":
                self._at += 1
            else:
                self._pair(table)
        return self._lines

    @property
    def _next(self) -> str:
        return self._tokens[self._at][0]

    def _header(self) -> Keys:
        line, self._at = self._line(), self._at + 1
        several = self._next == "["
        self._at += several
        named = self._key()
        self._at += 1 + several
        table: Keys = ()
        for at, name in enumerate(named, 1):
            table = (*table, name)
            if several and at == len(named):
                self._tables[table] = self._tables.get(table, -1) + 1
            self._lines.setdefault(table, line)
            table = (*table, self._tables[table]) if table in self._tables else table
        self._lines[table] = line
        return table

    def _pair(self, table: Keys) -> None:
        line, named = self._line(), self._key()
        for length in range(1, len(named) + 1):
            self._lines.setdefault((*table, *named[:length]), line)
        self._at += 1
        self._value((*table, *named))

    def _key(self) -> Keys:
        """The parts of a key with dots, up to what follows it."""
        parts = list[str]()
        while self._next not in ("=", "]"):
            if self._next != ".":
                parts.append(_plain(self._next))
            self._at += 1
        return tuple(parts)

    def _value(self, keys: Keys) -> None:
        if self._next == "[":
            self._array(keys)
        elif self._next == "{":
            self._inline(keys)
        else:
            while self._next not in ("\n", ",", "]", "}"):
                self._at += 1

    def _array(self, keys: Keys) -> None:
        number, self._at = 0, self._at + 1
        while self._next != "]":
            if self._next in ("\n", ","):
                self._at += 1
                continue
            self._lines[(*keys, number)] = self._line()
            self._value((*keys, number))
            number += 1
        self._at += 1

    def _inline(self, keys: Keys) -> None:
        self._at += 1
        while self._next != "}":
            if self._next in ("\n", ","):
                self._at += 1
            else:
                self._pair(keys)
        self._at += 1

    def _line(self) -> int:
        return bisect(self._ends, self._tokens[self._at][1] - 1) + 1


def _plain(part: str) -> str:
    """A part of a key without its quotes and escapes."""
    return next(iter(tomllib.loads(f"{part} = 0")))
