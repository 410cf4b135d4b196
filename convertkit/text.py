"""Rows and sizes as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

NOT_VERIFIED = "NOT VERIFIED (--allow-unverified)"
"""How a note begins of what was delivered all the same."""


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Rows as lines whose columns stand below each other, those at the places ``right`` flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.rjust(width) if place in right else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def size_text(size_bytes: int) -> str:
    """A size for people: decimal units as file managers show them."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
