"""The examples of a page of the manual, in the order in which a reader meets them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs/tutorials", "docs/how-to", "docs/explanation", "fixtures")
USES_A_FIXTURE = re.compile(r"(?<!CHECKOUT/)\bfixtures/[\w-]+/")
_EXAMPLE = re.compile(r"^```python\n(?P<python>.*?)^```$|^(?P<shell>(?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_PAGE_ENDS = re.compile(r"(?:\s+#\s*(?:exit (?P<code>\d))?.*)?\s*$")
_INSTALLS = re.compile(r"convertkit engines install (?P<name>[a-z][\w-]*)")


@dataclass(frozen=True, slots=True)
class Example:
    """Python code to execute, or one ``convertkit`` command with the exit code that the page tells."""

    kind: str
    text: str
    code: int = 0


def pages() -> list[Path]:
    """Pages whose examples run as they stand: those that begin with a model of fixtures/."""
    found = [page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))]
    return [page for page in found if any(USES_A_FIXTURE.search(each.text) for each in examples(page))]


def engine_of(page: Path) -> str | None:
    """The engine that a page has installed, None where it needs none."""
    found = _INSTALLS.search(page.read_text(encoding="utf-8"))
    return None if found is None else found["name"]


def examples(page: Path) -> list[Example]:
    """All of them; lines of a shell that do not begin with ``convertkit`` are of other tools and left out.

    So are those that install an engine: nothing is fetched.
    """
    found = list[Example]()
    for match in _EXAMPLE.finditer(page.read_text(encoding="utf-8")):
        if match["python"] is not None:
            found.append(Example("python", match["python"]))
            continue
        for line in re.sub(r"\\\n\s*", "", match["shell"]).splitlines():
            if line.strip().startswith("convertkit ") and not _INSTALLS.search(line):
                end = _PAGE_ENDS.search(line)
                assert end is not None
                found.append(Example("shell", line[: end.start()].strip(), int(end["code"] or 0)))
    return found
