"""Every page of the manual that begins with a model of fixtures/ is followed from its first example to its last."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from convertkit import plugins
from convertkit.engines.environments import installed
from convertkit.listing import everything
from tests.command_line import apart
from tests.docs.page_examples import ROOT, Example, engine_of, examples, pages


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that sees the fixtures, as the root of the repository does."""
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def follow(example: Example, names: dict[str, object], place: Path) -> None:
    if example.kind == "python":
        exec(compile(example.text, "page", "exec"), names)
        return
    words = shlex.split(example.text)[1:]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    said = apart(*words, cwd=place, env={**os.environ, "PYTHONPATH": path})
    assert said.code == example.code, f"{example.text}\n{said.err}"


def test_comments_are_no_arguments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "    convertkit engines install acme     # 9 MB\n"
        "    convertkit export 'a#b.onnx' -t acme  # for a board\n"
        "    convertkit export b.onnx  # exit 4\n"
        "    pip install c\n"
    )
    assert engine_of(page) == "acme"
    assert [(each.text.strip(), each.code) for each in examples(page)] == [
        ("convertkit export 'a#b.onnx' -t acme", 0),
        ("convertkit export b.onnx", 4),
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).with_suffix("").as_posix())
def test_a_page_is_as_it_says(place: Path, page: Path) -> None:
    engine = engine_of(page)
    if engine is not None and (engine not in plugins.engine_names() or installed(plugins.engine(engine)) is None):
        pytest.skip(f"the engine {engine} is not installed: convertkit engines install {engine}")
    target = next((each for each in everything()["targets"] if each.name == page.stem), None)
    if target is not None and not target.installed:
        pytest.skip(f"{target.name}: {target.state}")
    names: dict[str, object] = {"__name__": "page"}
    for example in examples(page):
        follow(example, names, place)
    delivered = [path.parent for path in place.glob("**/manifest.json")]
    assert delivered
    assert all(json.loads((folder / "report.json").read_text())["passed"] for folder in delivered)


def test_examples_are_told_apart(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "```python\nif True:\n    x = 1\n```"
    page.write_text(
        f"    convertkit targets \\\n        --json\n\n{block}\n\n    convertkit export   # exit 2: --help\n"
    )
    assert examples(page) == [
        Example("shell", "convertkit targets --json"),
        Example("python", "if True:\n    x = 1\n"),
        Example("shell", "convertkit export", 2),
    ]


def test_every_fixture_is_in_the_manual() -> None:
    text = "".join(example.text for page in pages() for example in examples(page))
    missing = [folder.name for folder in (ROOT / "fixtures").iterdir() if f"fixtures/{folder.name}/" not in text]
    assert not missing
