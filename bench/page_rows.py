"""Parts of a page: rows that a run before has written, whose lines of JSON are not here, and what a script writes.

A row of a suite has its ``name`` and, of each runtime that was tried, the verdict and the reason.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

VERDICTS = ("right", "refused", "wrong", "fault")
_REASON = 180
"""Characters of a reason that stand in a table."""


def latest(rows: Path) -> list[dict[str, Any]]:
    """A file's lines of JSON, of each name the last; none where there is no file."""
    found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    return list({row["name"]: row for row in found}.values())


def counted(rows: Sequence[dict[str, Any]], runtime: str) -> str:
    """Cells: how many rows of a runtime have each of ``VERDICTS``; empty where none was tried."""
    counts = Counter(row[runtime][0] for row in rows if runtime in row)
    return " | ".join(str(counts[each]) for each in VERDICTS) if counts else ""


def not_right(rows: Sequence[dict[str, Any]], runtimes: Sequence[str], what: str) -> Iterator[str]:
    """The table of all that is not right, row by row."""
    yield from (f"| {what} | runtime | | why |", "|---|---|---|---|")
    for row in rows:
        for runtime in runtimes:
            verdict, reason = row.get(runtime, ("right", ""))
            if verdict != "right":
                said = reason.replace("|", "\\|").replace("\n", " ").replace("[", "\\[")[:_REASON]
                yield f"| {row['name']} | {runtime} | {verdict} | {said} |"


def run_or_page(
    doc: str | None, kinds: Sequence[str], run: Callable[[Path, list[str], list[str], float], None],
    page: Callable[[Path], None],
) -> None:  # fmt: skip
    """The two commands of a suite of functions, each of which is tried with every type."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "page"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", default=",".join(kinds))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=400.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.command == "run":
        run(options.folder, options.kinds.split(","), options.only, options.seconds)
    else:
        page(options.folder)


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
