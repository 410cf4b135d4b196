"""Stories as a new user follows them: scripts run, refusals name the next command, the last one delivers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import apart

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
MOST_COMMANDS, MOST_SECONDS = 3, 240


@dataclass(frozen=True, slots=True)
class Story:
    """A page: its script, and its commands with the exit code that the page tells and why."""

    title: str
    script: str
    commands: tuple[tuple[tuple[str, ...], int, str], ...]


def stories() -> list[Story]:
    found = []
    for name in re.findall(r"\((story-[\w-]+\.md)\)", (TUTORIALS / "stories.md").read_text(encoding="utf-8")):
        page = (TUTORIALS / name).read_text(encoding="utf-8").replace("CHECKOUT", str(ROOT))
        (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        lines = re.findall(r"^    convertkit (export .*?)(?:   # exit (\d): (.*))?$", page, re.MULTILINE)
        commands = tuple((tuple(shlex.split(line)), int(code or 0), why) for line, code, why in lines)
        found.append(Story(page.partition("\n")[0].lstrip("# "), script, commands))
    return found


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.title)
def test_a_story(tmp_path: Path, story: Story) -> None:
    assert 1 <= len(story.commands) <= MOST_COMMANDS
    (tmp_path / "make.py").write_text(story.script)
    subprocess.run([sys.executable, "make.py"], cwd=tmp_path, check=True, timeout=300)
    begun = time.monotonic()
    for place, (words, code, why) in enumerate(story.commands):
        said = apart(*words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert said.code == code, said.err
        if code:
            following = story.commands[place + 1][0]
            assert all(word in said.complaint for word in why.split()), said.complaint
            assert set(why.split()) <= set(following)
            continue
        output = tmp_path / words[words.index("-o") + 1]
        reports = sorted(output.rglob("report.json"))
        assert len(reports) == words.count("--target")
        for report in map(json.loads, (path.read_text() for path in reports)):
            assert report["passed"]
            assert report["quality"] is None or not report["quality"]["weak"], report["quality"]
            assert report["evaluation"] is None or report["evaluation"]["before"] > 90
    assert code == 0, "the last command delivers"
    seconds = time.monotonic() - begun
    print(f"{story.title}: {seconds:.0f} s")
    assert seconds < MOST_SECONDS


def test_there_are_five_stories() -> None:
    assert len(stories()) == 5 == len(list(TUTORIALS.glob("story-*.md")))


def test_a_free_length_is_free(tmp_path: Path) -> None:
    (story,) = [each for each in stories() if "any length" in each.title]
    (tmp_path / "make.py").write_text(story.script)
    subprocess.run([sys.executable, "make.py"], cwd=tmp_path, check=True, timeout=300)
    said = apart(*story.commands[-1][0], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert "N and LENGTH dynamic" in said.out
