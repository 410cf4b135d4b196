"""Parts of a page: rows that a run before has written, whose lines of JSON are not here, and what a script writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def latest(rows: Path) -> list[dict[str, Any]]:
    """A file's lines of JSON, of each name the last; none where there is no file."""
    found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    return list({row["name"]: row for row in found}.values())


def section(page: Path, heading: str) -> str:
    """What the page has under a heading of the second level, with it; empty where it has none."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    start = text.find(f"{heading}\n") if heading else 0
    if start < 0:
        return ""
    end = text.find("\n## ", start + len(heading))
    return (text[start:] if end < 0 else text[start:end]).rstrip() + "\n"


def merged(page: Path, heading: str, lines: Sequence[str], cells: int) -> list[str]:
    """The rows of a table of the page with those of ``lines`` in their place; the first ``cells`` tell rows apart."""
    there = [line for line in section(page, heading).splitlines() if line.startswith("| ")][1:]
    found = {_key(line, cells): line for line in there} | {_key(line, cells): line for line in lines}
    return list(found.values())


def _key(line: str, cells: int) -> tuple[str, ...]:
    parts = [cell.strip() for cell in line.strip("|").split("|")[:cells]]
    return tuple(cell.partition("](")[0].lstrip("[") for cell in parts)


def replace_between(page: Path, made: str, begin: str, end: str) -> None:
    """Put ``made``, which starts with ``begin`` and ends with ``end``, in the place of what these two enclose."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    page.write_text(before + made + rest.partition(end)[2], encoding="utf-8")
