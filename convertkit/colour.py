"""Colours on a terminal, and nowhere else; none where ``NO_COLOR`` asks for that (https://no-color.org)."""

from __future__ import annotations

import os
from typing import TextIO

STYLES = {
    "path": {"fg": "green", "bold": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
}


def painted(text: str, style: str, stream: TextIO) -> str:
    """``text`` in one of :data:`STYLES` where ``stream`` shows that."""
    if not shows_colour(stream):
        return text
    import click

    return click.style(text, **STYLES[style])  # type: ignore[arg-type]


def shows_colour(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal whose user has not asked for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
