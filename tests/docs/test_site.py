"""The manual as a site: it builds without a warning, holds every page, and needs nothing from the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page_examples import ROOT
from tests.installed import needs

needs("mkdocs")
needs("material")

DOCS = ROOT / "docs"
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")
BIGGEST = 12_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(out)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def test_every_page_is_in_the_site_and_in_its_search(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert built == pages | {"404.html"}
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert pages <= {entry["location"].partition("#")[0] for entry in index["docs"]} | {"index.html", "404.html"}
    assert (site / "search" / "search_index.js").is_file(), "from disk a browser reads the index as a script"


def test_the_site_needs_no_network(site: Path) -> None:
    """Links may lead outside; scripts, styles, fonts and pictures may not."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8").replace('<link rel="canonical"', "")
        assert not LOADED.findall(text), page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text(encoding="utf-8"))
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < BIGGEST


def test_no_link_of_the_site_leads_nowhere(site: Path) -> None:
    """Also the ones to files of the repository, which are paths there, and the navigation."""
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # is served for any address, so its links are absolute
            continue
        for link in re.findall(r"\bhref=[\"']([^\"'#:]+)(?:#[^\"']*)?[\"']", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
