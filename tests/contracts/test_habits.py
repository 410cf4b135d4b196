"""Forms and hooks that tools outside of Python read: that they are well formed and name what there is."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
COMMUNITY = ("CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md")


def test_hooks_are_the_tools_of_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"], "versions come from constraints.txt, for everyone the same"
    entries = [hook["entry"] for hook in hooks[0]["hooks"]]
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    tools = {re.sub(r"\$\(BIN\)/", ".venv/bin/", line.strip()) for line in lint.splitlines()[1:]}
    for tool in tools:
        begin = " ".join(tool.split()[:2]) if "ruff" in tool else tool
        assert any(entry.startswith(begin) for entry in entries), tool


def test_hooked_scripts_are_there():
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    for script in re.findall(r"python (\S+\.py)", text):
        assert (ROOT / script).is_file()


@pytest.mark.parametrize("form", [form for form in FORMS if form.name != "config.yml"], ids=lambda form: form.stem)
def test_issue_forms_are_well_formed(form):
    """The keys that GitHub's schema for issue forms demands, and ids that differ."""
    parsed = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(parsed)
    ids = [field["id"] for field in parsed["body"]]
    assert len(ids) == len(set(ids))
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in parsed["body"])


def test_the_citation_has_what_the_format_demands():
    parsed = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(parsed)
    assert parsed["license"] == "Apache-2.0"


@pytest.mark.parametrize("name", COMMUNITY)
def test_links_of_community_pages_lead_somewhere(name):
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
