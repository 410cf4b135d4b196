"""Results that people read: as lines on a terminal, as tables in a notebook, as JSON in a pipeline."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.text import aligned


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a title; ``right`` are the columns that stand flush right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()

    def lines(self) -> Iterator[str]:
        """The table for a terminal; nothing where it has no rows."""
        if self.rows:
            if self.title:
                yield self.title
            rows = (self.head, *self.rows) if any(self.head) else self.rows
            yield from (f"  {line}" for line in aligned(rows, self.right))

    def as_html(self) -> str:
        """The table for a notebook."""
        if not self.rows:
            return ""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        rows = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _cells(self, row: Sequence[str]) -> str:
        styles = [' style="text-align:right"' if place in self.right else "" for place in range(len(row))]
        return "".join(f"<td{style}>{html.escape(cell)}</td>" for style, cell in zip(styles, row, strict=True))


class Shown:
    """What a looking command found: its ``headline``, its ``tables`` and its ``notes``."""

    __slots__ = ()

    @property
    def headline(self) -> str:
        """The result in a line."""
        raise NotImplementedError

    def tables(self) -> tuple[Table, ...]:
        """The result as tables."""
        return ()

    def remarks(self) -> tuple[str, ...]:
        """What one should know besides."""
        return ()

    def lines(self) -> Iterator[str]:
        """Everything for a terminal."""
        yield self.headline
        for table in self.tables():
            if shown := [*table.lines()]:
                yield ""
                yield from shown
        yield from (f"note: {text}" for text in self.remarks())

    def as_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it."""
        from convertkit.report.jsonable import jsonable

        found: dict[str, Any] = jsonable(self)
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.headline}>"

    def _repr_html_(self) -> str:
        tables = "".join(table.as_html() for table in self.tables())
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in self.remarks())
        return f"<p>{html.escape(self.headline)}</p>{tables}" + (f"<ul>{notes}</ul>" if notes else "")


def share_text(share: float) -> str:
    """A share (0 to 1) in per cent."""
    return f"{100 * share:.1f} %"


def count_text(count: float) -> str:
    """A number of multiply-adds or parameters."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f}"


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape as people write it."""
    return f"[{', '.join(map(str, shape))}]"
