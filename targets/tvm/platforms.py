"""What a library can be compiled for, and the compilers that link it."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from convertkit.errors import ToolError


@dataclass(frozen=True, slots=True)
class Platform:
    """``triple`` and ``cpu`` as LLVM has them; ``linkers`` are compilers that link for it, the first that is there."""

    triple: str
    cpu: str
    linkers: tuple[str, ...]


PLATFORMS: Mapping[str, Platform] = {
    "linux-x86_64": Platform("x86_64-linux-gnu", "x86-64", ("x86_64-linux-gnu-g++",)),
    "linux-arm64": Platform("aarch64-linux-gnu", "generic", ("aarch64-linux-gnu-g++",)),
}
_MACHINES = {"x86_64": "linux-x86_64", "aarch64": "linux-arm64"}
_OWN_LINKERS = ("g++", "c++", "clang++")


def here() -> str:
    """The platform of this machine; ``ToolError`` for one that TVM is not written for."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise ToolError(f"--target tvm compiles for {', '.join(PLATFORMS)}, and this machine is {machine}")
    return _MACHINES[machine]


def linker(name: str) -> str:
    """The compiler that links for a platform; ``ToolError`` names what is looked for where there is none."""
    wanted = (*PLATFORMS[name].linkers, *(_OWN_LINKERS if name == here() else ()))
    found: list[str] = [each for each in wanted if shutil.which(each)]
    if not found:
        raise ToolError(f"TVM needs a C++ compiler to link for {name}; none of these is on PATH: {', '.join(wanted)}")
    return found[0]
