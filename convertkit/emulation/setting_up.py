"""Makes the arm64 root: Debian's Python for arm64, unpacked, and the runtimes' wheels for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from convertkit.emulation.root import PACKAGES, RECORD, VARIABLE, emulator, installed, place
from convertkit.errors import DeliveryError, MissingTool, ToolError, full_disk
from convertkit.progress import Progress

DEBIAN = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "libgomp1")
"""What is asked of Debian; with what they depend on."""
WHEELS = ("numpy", "ml_dtypes")
"""What is asked of the package registry, beside the runtimes in the versions that are installed here."""
DOWNLOAD_MB, DISK_MB = 76, 260
"""Measured: 16 MB are Debian's packages, the rest wheels."""
ABOUT = f"16 MB of Debian packages and 60 MB of wheels are downloaded, and {DISK_MB} MB written"
_NEEDED = {"apt-get": "apt", "dpkg-deb": "dpkg"}
_PLATFORMS = (*(f"manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)), "manylinux2014_aarch64")
"""glibc of Debian 12, and each that wheels for older ones name."""


def set_up(progress: Progress) -> Path:
    """Make the root anew and return its folder; what lay there before is replaced once the new one is complete.

    Raises ``DeliveryError`` where other files lie there or nothing can be written, ``MissingTool`` without the
    emulator, Debian's tools or pip, ``ToolError`` where one of them fails.
    """
    target = place()
    _check_place(target)
    emulator()
    missing = missing_tool()
    if missing is not None:
        raise MissingTool(missing)
    try:
        return _made(target, progress)
    except OSError as error:
        raise full_disk(error) or DeliveryError(f"{target} cannot be written: {error.strerror}") from error


def missing_tool() -> str | None:
    """The sentence about a program that is needed and not installed; None where all are."""
    for tool, package in _NEEDED.items():
        if shutil.which(tool) is None:
            return f"{tool} is not installed and the arm64 root needs it: it is of Debian's {package}"
    if find_spec("pip") is None:
        return "pip is not installed and the arm64 root needs it; run: python -m ensurepip"
    return None


def _check_place(target: Path) -> None:
    """Raise ``DeliveryError`` for a folder that is not a root: whatever lies there would be removed."""
    if target.exists() and not (target.is_dir() and ((target / RECORD).is_file() or not any(target.iterdir()))):
        raise DeliveryError(
            f"{target} holds other files, and the arm64 root takes its place; ${VARIABLE} has to name a new folder"
        )


def _made(target: Path, progress: Progress) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as name:
        made = Path(name, "root")
        progress.status("downloading Debian's Python for arm64")
        packages = _debian(Path(name, "apt"), made)
        python = _python(made)
        progress.status("downloading wheels for arm64")
        wheels = _wheels(made, python)
        record = {"python": str(python), "versions": wheels, "debian": packages}
        (made / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        if target.exists():
            target.rename(Path(name, "before"))
        made.rename(target)
    return target


def _debian(apt: Path, made: Path) -> list[str]:
    """Unpack the packages into ``made``, by this machine's sources and keys, without touching its own state."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Debug::NoLocking": "1",
    }
    command = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    # A source that has nothing for arm64 fails here; whether the packages are found, the next command tells.
    subprocess.run([*command, "update"], capture_output=True, check=False)
    _run("apt-get", [*command, "-y", "--no-install-recommends", "--download-only", "install", *DEBIAN])
    packages = sorted((apt / "cache" / "archives").glob("*.deb"))
    made.mkdir()
    for package in packages:
        _run("dpkg-deb", ["dpkg-deb", "--extract", str(package), str(made)])
    return [package.name.removesuffix(".deb") for package in packages]


def _python(made: Path) -> Path:
    """The interpreter, relative to the root."""
    found = sorted((made / "usr" / "bin").glob("python3.*[0-9]"))
    if not found:
        raise ToolError(f"the Debian packages {', '.join(DEBIAN)} brought no Python")
    return found[0].relative_to(made)


def _wheels(made: Path, python: Path) -> dict[str, str]:
    """Install the runtimes' wheels, and return the versions that were asked for."""
    versions = installed()
    if not versions:
        raise MissingTool(
            "neither ai-edge-litert nor onnxruntime is installed, of which --arm64 would compare anything"
        )
    wanted = [*WHEELS, *(f"{name}=={number}" for name, number in versions.items())]
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    version = python.name.removeprefix("python")
    where = ["--target", str(made / PACKAGES), "--python-version", version, "--implementation", "cp"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    _run("pip", [*pip, "--only-binary=:all:", *platforms, *where, *wanted])
    return versions


def _run(name: str, command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        told = next((line for line in lines if line.startswith(("E: ", "ERROR: "))), lines[-1] if lines else "")
        raise ToolError(f"{name} failed: {told.removeprefix('E: ').removeprefix('ERROR: ')}")
