"""Every page of the manual that begins with a model of fixtures/ is followed from its first example to its last."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.command_line import here
from tests.docs.page_examples import ROOT, Example, examples, pages


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that sees the fixtures, as the root of the repository does."""
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def follow(example: Example, names: dict[str, object]) -> None:
    if example.kind == "python":
        exec(compile(example.text, "page", "exec"), names)
        return
    words = shlex.split(example.text)[1:]
    said = here(*words)
    assert said.code == example.code, f"{example.text}\n{said.err}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).with_suffix("").as_posix())
def test_a_page_is_as_it_says(place: Path, page: Path) -> None:
    names: dict[str, object] = {"__name__": "page"}
    for example in examples(page):
        follow(example, names)
    delivered = [path.parent for path in place.glob("**/manifest.json")]
    assert delivered
    assert all(json.loads((folder / "report.json").read_text())["passed"] for folder in delivered)


def test_every_fixture_is_in_the_manual() -> None:
    text = "".join(example.text for page in pages() for example in examples(page))
    missing = [folder.name for folder in (ROOT / "fixtures").iterdir() if f"fixtures/{folder.name}/" not in text]
    assert not missing
