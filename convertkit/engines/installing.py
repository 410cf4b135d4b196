"""Making an engine's environment, and removing it."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from convertkit.engines.engine import Engine
from convertkit.engines.environments import MARK, Installed, folder, installed, others, place
from convertkit.errors import ConvertKitError, DeliveryError, ToolError, Unsupported, full_disk
from convertkit.workers.elsewhere import Elsewhere, places
from convertkit.workers.process import Worker

_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:")
"""Whose index pip asks is the user's own configuration."""
_SERVICE = "convertkit.engines.service:ImportService"


def install(engine: Engine) -> Installed:
    """Make the environment where it is not there; those of other requirements go.  pip tells on stderr what it does.

    Raises ``Unsupported`` where there are no packages for this Python or system, ``ToolError`` with what pip said.
    What is not whole is removed again.
    """
    if engine.hindrance:
        raise Unsupported(engine.hindrance, subject=f"engine {engine.name}")
    with _alone():
        found = installed(engine)
        if found is not None:
            return found
        for each in others(engine.name):
            _gone(each)
        there = place(engine)
        try:
            _make(engine, there)
        except OSError as error:
            shutil.rmtree(there, ignore_errors=True)
            raise full_disk(error) or DeliveryError(f"{there} cannot be written: {error.strerror}") from error
        except BaseException:
            shutil.rmtree(there, ignore_errors=True)
            raise
        made = installed(engine)
    assert made is not None
    return made


def remove(name: str) -> int:
    """Remove every environment of the engine called ``name``; how many there were."""
    if not folder().is_dir():
        return 0
    with _alone():
        found = others(name)
        for each in found:
            _gone(each)
    return len(found)


def _gone(there: Path) -> None:
    """Remove an environment; its mark goes first, so that what is left of it does not count as one."""
    try:
        (there / MARK).unlink(missing_ok=True)
        shutil.rmtree(there)
    except OSError as error:
        raise DeliveryError(f"{there} cannot be removed: {error.strerror}") from error


def _make(engine: Engine, there: Path) -> None:
    _run([sys.executable, "-m", "venv", str(there)], f"the environment of {engine.name} cannot be made")
    python = str(there / "bin" / "python")
    said = f"pip does not install the engine {engine.name}"
    _run([python, "-P", "-s", *_PIP, "--requirement", str(engine.requirements)], said)
    lent = tuple(places(dict.fromkeys(engine.lends)))
    with Worker(_SERVICE, elsewhere=Elsewhere(Path(python), lent)) as worker:
        try:
            worker.call("imports", {"names": engine.imports})
        except ConvertKitError as error:
            raise ToolError(f"the engine {engine.name} was installed and does not start: {error}") from error
    size = sum(file.lstat().st_size for file in there.rglob("*") if not file.is_dir())
    told = {"engine": engine.name, "packages": engine.packages, "size_bytes": size}
    (there / MARK).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _run(command: Sequence[str], failure: str) -> None:
    """Run a command whose output people see on stderr; ``ToolError`` with its last line where it fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line.rstrip(), file=sys.stderr)
            last = line.strip() or last
    if process.returncode:
        raise ToolError(f"{failure}: {last.removeprefix('ERROR: ')[:300]}")


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until nobody else installs or removes."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        lock = (folder() / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise full_disk(error) or DeliveryError(f"{folder()} cannot be written: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
