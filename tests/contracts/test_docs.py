"""What the documentation shows is what there is."""

import importlib.util
from pathlib import Path

import pytest

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


def test_no_link_is_broken(generate):
    assert not generate.broken_links()
