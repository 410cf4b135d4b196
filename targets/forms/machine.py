"""Which machine this is: what decides how long its kernels take."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "Model", "Hardware", "CPU part")
_FEATURES = ("flags", "Features")


def machine(runtime: str, cpuinfo: Path = _CPUINFO) -> Mapping[str, str]:
    """Its name for people, the processor's features and the version of the package ``runtime``.

    ``cpuinfo`` is Linux's; where there is none, what Python knows of the processor has to do.
    """
    fields = _fields(cpuinfo)
    plain = platform.processor() or platform.machine()
    name = next((found for key in _NAMES if (found := " + ".join(sorted(fields.get(key, ()))))), plain)
    features = sorted(" ".join(sorted(each.split())) for key in _FEATURES for each in fields.get(key, ()))
    return {
        "name": name,
        "architecture": platform.machine(),
        "features": hashlib.sha256("\n".join(features).encode()).hexdigest()[:16],
        "runtime": metadata.version(runtime),
    }


def _fields(cpuinfo: Path) -> dict[str, set[str]]:
    """The values of each key, of all cores."""
    found = dict[str, set[str]]()
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), set()).add(value.strip())
    return found
