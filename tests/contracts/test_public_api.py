"""What is public is importable, documented and typed: one list, three times the same."""

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_type_hints

import pytest

import convertkit

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "versioning.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def documented(heading):
    """Names in the first column of the table below a heading."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)


def test_all_is_what_is_documented():
    assert sorted(convertkit.__all__) == sorted(documented("The Python API"))
    assert convertkit.__all__ == sorted(convertkit.__all__)


def test_a_star_import_gives_what_is_listed():
    code = "from convertkit import *; print(*sorted(name for name in dir() if name[0] != '_'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == convertkit.__all__


@pytest.mark.parametrize("name", convertkit.__all__)
def test_public_names_have_docstrings(name):
    found = getattr(convertkit, name)
    assert inspect.getdoc(found)
    if inspect.isfunction(found):
        assert found.__annotations__.keys() == {*inspect.signature(found).parameters, "return"}


def mentioned(kind):
    """Our own classes in the annotations of a public function or dataclass."""
    hints = get_type_hints(kind.__init__ if inspect.isclass(kind) else kind)
    text = " ".join(map(str, hints.values()))
    return {name.rpartition(".")[2] for name in re.findall(r"convertkit\.recipe\.\w+", text)}


def test_what_options_take_is_public():
    taken = mentioned(convertkit.export) | mentioned(convertkit.ExportOptions)
    assert taken == {"ImageOptions", "InputSpec", "MeasuredDevice", "Normalization", "WavOptions"}
    assert taken <= set(convertkit.__all__)


@pytest.mark.parametrize("module", documented("The plugin API"))
def test_the_plugin_api_is_there(module):
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{module}` |"))
    names = re.findall(r"`(\w+)`", row.split("|")[2])
    found = importlib.import_module(module)
    assert all(inspect.getdoc(getattr(found, name)) for name in names)


def test_the_worked_plugin_keeps_to_the_plugin_api():
    code = "".join(file.read_text() for file in (ROOT / "tests" / "plugins" / "acme").rglob("*.py"))
    used = set(re.findall(r"^from (convertkit[\w.]*) import|^import (convertkit[\w.]*)", code, re.MULTILINE))
    assert {one or other for one, other in used} <= set(documented("The plugin API"))


def test_the_version_stands_in_one_place(project):
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "convertkit.__version__"}}
    assert f"\nversion: {convertkit.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_keeps_its_form():
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head) for head in heads[1:])
    kinds = set(re.findall(r"^### (.*)$", page, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    unreleased = re.search(r"Becomes (\S+),", page.partition("## [Unreleased]")[2])
    assert len(heads) > 1 or unreleased[1] == convertkit.__version__
