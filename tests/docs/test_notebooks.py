"""Example notebooks: stored without outputs, and every cell runs, in order, in an empty folder beside the fixtures."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.docs.page_examples import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(notebook: Path) -> list[str]:
    """The code of each code cell."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def run_cell(code: str, names: dict[str, object]) -> object:
    """What a notebook does with a cell: executes it, and shows the value of a last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notebook: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    (tmp_path / "examples").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    shown = [run_cell(code, names) for code in cells(notebook)]
    assert any(each is not None and repr(each) for each in shown)
    assert list((tmp_path / "examples").glob("*/manifest.json"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_clean(notebook: Path) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in content["cells"]]
    assert len(ids) == len(set(ids))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_every_notebook_is_listed() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"({path.name})" not in page] == []
    assert len(NOTEBOOKS) >= 2
