"""Templates are compiled once, and again where anything that they compile to has changed."""

import importlib.metadata
import stat
import sys
from pathlib import Path

import jinja2
import pytest

from convertkit.report.compiled import BesideModules


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "page.html").write_text("{{ name }} first")
    return tmp_path


class Counting(jinja2.Environment):
    compiled = 0

    def _compile(self, source, filename):
        self.compiled += 1
        return super()._compile(source, filename)


def compiled(folder: Path) -> tuple[str, int]:
    """What the template says, and how many were compiled for that, in an environment of its own."""
    environment = Counting(loader=jinja2.FileSystemLoader(folder), bytecode_cache=BesideModules(folder))
    text = environment.get_template("page.html").render(name="it")
    return text, environment.compiled


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").iterdir())


def test_compiled_once(folder):
    assert [compiled(folder), compiled(folder)] == [("it first", 1), ("it first", 0)]
    assert [path.suffix for path in kept(folder)] == [".pyc"]


def test_a_changed_template_is_compiled_again(folder):
    compiled(folder)
    (folder / "page.html").write_text("{{ name }} second")
    assert [compiled(folder), compiled(folder)] == [("it second", 1), ("it second", 0)]


def test_another_jinja2_compiles_again(folder, monkeypatch):
    compiled(folder)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99")
    assert compiled(folder) == ("it first", 1)


def test_what_is_kept_may_be_broken(folder):
    compiled(folder)
    (path,) = kept(folder)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert compiled(folder) == ("it first", 1), length
        assert path.read_bytes() == whole


def test_nothing_is_kept_where_python_keeps_nothing(folder, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert compiled(folder) == ("it first", 1)
    assert not (folder / "__pycache__").exists()


def test_a_folder_that_cannot_be_written(folder):
    (folder / "__pycache__").write_text("a file where the folder belongs")
    assert [compiled(folder), compiled(folder)] == [("it first", 1), ("it first", 1)]
    assert stat.S_ISREG((folder / "__pycache__").stat().st_mode)
