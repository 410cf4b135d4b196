"""What the documentation shows is what there is."""

import importlib.util
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from convertkit import errors

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh(generate):
    for name, page in generate.PAGES.items():
        assert (DOCS / name).read_text(encoding="utf-8") == page(), "run make docs"


def test_every_page_is_of_a_kind(generate):
    """A page that lies elsewhere would be in no list."""
    folders = {page.relative_to(DOCS).parent.as_posix() for page in DOCS.rglob("*.md")}
    assert folders == {".", *generate.KINDS}
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"]


def test_no_link_is_broken(generate):
    assert not generate.broken_links()


def test_the_worked_operator_is_the_one_in_the_repository():
    page = (DOCS / "how-to" / "add-an-operator.md").read_text(encoding="utf-8")
    code = "\n".join(file.read_text(encoding="utf-8") for file in (DOCS.parent / "targets" / "tflite").rglob("*.py"))
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        assert block in code or textwrap.indent(block, "    ") in code, block


def test_every_error_has_its_section():
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    classes = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__}
    assert set(sections) == classes
    for name, text in sections.items():
        assert all(f"**{heading}.**" in text for heading in ("What it means", "Why", "Ways out")), name
