"""What users read speaks of verification in the same words everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHER_WORDS = re.compile(
    r"(?<![\w-])(prov(e|es|en|ing)|proofs?|depart(s|ed|ures?)?|roads?|ladder|islands?|unrest|foreseen"
    r"|free (dimensions?|sizes?|batch|axis|axes)|(batch|dimensions?|sizes?|axis|length) (is|are) free"
    r"|(?<!there )(is|are) no (\w+ )?(file|model|number|input|function|constant|part))(?![\w-])",
    re.IGNORECASE,
)
"""Here it is verified, not verified, verification; differs; route; float fallback; dynamic; is not a file."""
FILES = sorted(
    path
    for folder in ("convertkit", "converters", "quantization", "targets")
    for path in (ROOT / folder).rglob("*.py")
    if path.resolve() == path  # what the core's symlinks show stands in its own folder
)
PAGES = [ROOT / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").rglob("*.md"))]


def sentences(source: str) -> Iterator[str]:
    """Texts of a module that hold a space, docstrings aside: messages and help."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in alone and " " in node.value:
            yield node.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages(path: Path):
    found = [text for text in sentences(path.read_text(encoding="utf-8")) if OTHER_WORDS.search(text)]
    assert not found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages(path: Path):
    text = re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8"))  # names of the code stay
    found = [line for line in text.splitlines() if OTHER_WORDS.search(line)]
    assert not found


def test_an_old_word_is_found():
    assert [*filter(OTHER_WORDS.search, sentences('raise Error(f"not proven after {step}")'))]
    for text in ("y departs by 1", "a free size", "the batch is free", "x is no file", "x is no readable file"):
        assert OTHER_WORDS.search(text), text
    for text in ("--not-proven of a name", "a free core", "is no slower", "no file", "not a file"):
        assert not OTHER_WORDS.search(text), text
