"""What an engine is: pinned packages for an environment of its own, and what is said before they are fetched."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from convertkit.errors import ToolError

_PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^\s;#]+)")


@dataclass(frozen=True, slots=True)
class Engine:
    """What an entry point of ``convertkit.engines`` holds.

    ``requirements`` is a file of lines ``package==version``: all that is installed, as nothing else is fetched.  NumPy
    and ml_dtypes are among them or among ``lends``: every worker needs both.  ``download_mb`` and ``disk_mb`` were
    measured, in 10^6 bytes; ``disk_mb`` is with the environment's pip.  ``imports`` are modules that have to import in
    the finished environment.  ``lends`` are top-level packages of convertkit's own environment that the engine uses, so
    that they need not be fetched once more.  ``pythons`` and ``systems`` say for which there are wheels, empty for any;
    a system is one of ``linux-x86_64``, ``linux-aarch64``, ``darwin-arm64``.
    """

    name: str
    summary: str
    requirements: Path
    licence: str
    download_mb: int
    disk_mb: int
    imports: tuple[str, ...]
    lends: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()

    @property
    def packages(self) -> dict[str, str]:
        """What is installed, with its versions, in the order of the file; ``ToolError`` for a line without one."""
        found = {}
        for line in self.requirements.read_text(encoding="utf-8").splitlines():
            text = line.partition("#")[0].strip()
            pinned = _PINNED.fullmatch(text)
            if pinned is not None:
                found[pinned[1]] = pinned[2]
            elif text:
                raise ToolError(
                    f"engine {self.name}: {self.requirements.name} has {text!r}, which is not PACKAGE==VERSION"
                )
        return found

    @property
    def key(self) -> str:
        """Tells environments of other requirements, of another Python or of another system apart."""
        pinned = "\n".join(f"{name}=={version}" for name, version in self.packages.items())
        return hashlib.sha256(f"{pinned}\n{this_python()}\n{this_system()}".encode()).hexdigest()[:12]

    @property
    def hindrance(self) -> str:
        """Why the engine cannot be installed here, as a clause; empty where it can."""
        if self.systems and this_system() not in self.systems:
            return f"it is for {_listed(self.systems)}, and this is {this_system()}"
        if self.pythons and this_python() not in self.pythons:
            return f"it has packages for Python {_listed(self.pythons)}, and this is Python {this_python()}"
        return ""

    @property
    def costs(self) -> str:
        """What installing it takes, and its licence."""
        return costs(self.download_mb, self.disk_mb, self.licence)

    def version(self, package: str) -> str:
        """The package with the version that is pinned, such as ``iree-base-compiler 3.13.0``."""
        return f"{package} {self.packages[package]}"


def costs(download_mb: int, disk_mb: int, licence: str) -> str:
    """What installing takes, in 10^6 bytes, and the licence, as people are told it."""
    return f"{download_mb} MB to download, {disk_mb} MB on disk; {licence}"


def this_python() -> str:
    """MAJOR.MINOR."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def this_system() -> str:
    """The system and its processor."""
    return f"{sys.platform}-{platform.machine()}"


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
