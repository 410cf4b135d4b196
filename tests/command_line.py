"""The command as a user meets it: exit code, what is said, what lies on the disk afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from convertkit import cli


@dataclass(frozen=True, slots=True)
class Said:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The last thing said on stderr, from ``convertkit:`` or ``Error:`` on; steps before it left out."""
        for mark in ("convertkit: ", "Error: "):
            if mark in self.err:
                return self.err[self.err.index(mark) + len(mark) :].strip()
        return ""


def here(*arguments: object) -> Said:
    """Run the command in this process, which is quick."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main([str(each) for each in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def command(*arguments: object) -> list[str]:
    """The command for a process of its own."""
    return [sys.executable, "-P", "-m", "convertkit", *map(str, arguments)]


def apart(*arguments: object, **how: object) -> Said:
    """Run the command in a process of its own; ``how`` goes to ``subprocess.run``."""
    done = subprocess.run(
        command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300, **how
    )
    return Said(done.returncode, done.stdout, done.stderr)


def with_path(*folders: Path) -> dict[str, str]:
    """This process's environment, with folders in which Python looks first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])}


def guarded(*arguments: object) -> Said:
    """Run the command where the rights of files count, for root too, whom they do not bind otherwise."""
    return apart(*arguments, preexec_fn=_bound_by_rights)


def _bound_by_rights() -> None:
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH; 24 is PR_CAPBSET_DROP
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


def everything_below(folder: Path) -> set[str]:
    """All names below ``folder``, hidden ones too."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def check_refusal(said: Said, code: int, *words: str) -> None:
    """One honest complaint with this exit code that contains ``words``; no traceback, no internal error."""
    story = f"exit {said.code}\n{said.err}"
    if said.code != code or said.out:
        pytest.fail(f"expected exit {code} and nothing on stdout\n{story}\nstdout: {said.out!r}")
    if "Traceback" in said.err or "internal error" in said.err or not said.complaint:
        pytest.fail(f"not a sentence for a user\n{story}")
    sentence = said.complaint.splitlines()[0]
    if len(sentence) > 600:
        pytest.fail(f"a sentence of {len(sentence)} characters\n{story}")
    for word in words:
        if word not in said.complaint:
            pytest.fail(f"{word!r} is not said\n{story}")


def refused(place: Path, code: int, words: Sequence[str], source: object, *arguments: object, run=here) -> None:
    """Export into ``place``, which must stay as it is."""
    before = everything_below(place)
    said = run("export", source, "-o", place / "out", *arguments)
    check_refusal(said, code, *words)
    assert everything_below(place) == before


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")
