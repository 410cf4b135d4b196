"""``convertkit doctor``: what is installed, what does not go together, and what is missing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from packaging.requirements import Requirement

from convertkit import __version__, plugins
from convertkit.errors import DISTRIBUTION, ConvertKitError, install_command
from convertkit.looking.tables import Shown, Table
from convertkit.report.build import environment

_NO_USERS = frozenset({"dev", "all"})
_EXCLUDE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("onnxruntime", "onnxruntime-gpu"), "both write into the package onnxruntime, and the later one wins in part"),
    (("tensorflow", "tensorflow-cpu"), "both write into the package tensorflow, and the later one wins in part"),
    (("tensorflow-cpu", "tf-nightly"), "both write into the package tensorflow, and the later one wins in part"),
    (("ai-edge-litert", "ai-edge-litert-nightly"), "both write into the package ai_edge_litert"),
    (("onnx", "onnx-weekly"), "both write into the package onnx, and the later one wins in part"),
    (("convertkit", "convertkit-ml"), "convertkit on the public index is another project of the same import name"),
)
"""Distributions of which an environment may hold one only."""
_QUALCOMM = "Qualcomm's own licence for its libraries"
_LICENCES: Mapping[str, str] = {"qnn": _QUALCOMM, "litert-npu": _QUALCOMM, "tensorrt": "NVIDIA's own licence"}
"""Of extras that bring what is not open source; installing one accepts it."""
_LEAST_DISK, _LEAST_MEMORY = 2 << 30, 2 << 30


@dataclass(frozen=True, slots=True)
class Extra:
    """One of our extras: ``packages`` with the version that is there, None where one is missing.

    ``megabytes`` is what it adds to the core on disk, measured in the environment that the tests run in; None where
    that is not known.  ``licence`` is told where it is not an open one.
    """

    name: str
    packages: Mapping[str, str | None]
    install: str
    megabytes: int | None
    licence: str

    @property
    def installed(self) -> bool:
        """Whether all of it is there."""
        return None not in self.packages.values()


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Shown):
    """``environment`` is what runs here, ``extras`` what can be added, ``problems`` what does not go together."""

    environment: Mapping[str, Any]
    extras: tuple[Extra, ...]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; an extra that is missing is not wrong."""
        return not self.problems

    @property
    def failure(self) -> ConvertKitError | None:
        """The problems as an error; None where there are none."""
        if self.passed:
            return None
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return ConvertKitError(f"{self.problems[0]}{more}")

    @property
    def headline(self) -> str:
        """How many problems there are."""
        count = len(self.problems)
        state = "no problem found" if not count else f"{count} problem{'s' if count > 1 else ''}"
        return f"convertkit {__version__}, Python {self.environment['python']}: {state}"

    def tables(self) -> tuple[Table, ...]:
        """Problems first, then the environment and the extras."""
        told = {key: value for key, value in self.environment.items() if key != "packages"}
        rows = tuple((key, str(value)) for key, value in {**told, **self.environment["packages"]}.items())
        extras = tuple(
            (each.name, _state(each), "" if each.megabytes is None else f"{each.megabytes} MB", _command(each))
            for each in self.extras
        )
        return (
            Table("problems", ("",), tuple((text,) for text in self.problems)),
            Table("environment", ("", ""), rows),
            Table("extras", ("", "", "on disk", ""), extras, (2,)),
        )


def _state(extra: Extra) -> str:
    missing = [name for name, version in extra.packages.items() if version is None]
    if missing:
        return f"missing {', '.join(missing)}"
    return ", ".join(f"{name} {version}" for name, version in extra.packages.items())


def _command(extra: Extra) -> str:
    told = (extra.licence, "" if extra.installed else extra.install)
    return "; ".join(each for each in told if each)


def doctor() -> Diagnosis:
    """What is installed here, what does not go together, and what each missing extra would add."""
    problems = (*_twice(), *_unmet(), *_broken(), *_short())
    return Diagnosis(_environment(), tuple(_extras()), tuple(dict.fromkeys(problems)))


def _environment() -> dict[str, Any]:
    found = environment()
    memory = _memory_bytes()
    return {
        **{key: value for key, value in found.items() if key != "packages"},
        "memory": "" if memory is None else f"{memory / 1e9:.1f} GB",
        "executable": sys.executable,
        "packages": found["packages"],
    }


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _extras() -> Iterator[Extra]:
    sizes = json.loads(resources.files("convertkit.looking").joinpath("extras.json").read_text(encoding="utf-8"))
    declared = _declared()
    for name in sorted(declared.keys() - {"", *_NO_USERS}):
        wanted = [each for each in declared[name] if each.name != DISTRIBUTION]
        size = sizes.get(name)
        packages = {each.name: _version(each.name) for each in wanted}
        megabytes = None if size is None else int(size["megabytes"])
        yield Extra(name, packages, install_command(name), megabytes, _LICENCES.get(name, ""))


def _declared() -> dict[str, list[Requirement]]:
    """What we require on this system, by extra; the core's requirements by an empty name."""
    found: dict[str, list[Requirement]] = {"": []}
    names = importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    for text in importlib.metadata.requires(DISTRIBUTION) or ():
        each = Requirement(text)
        for extra in ("", *names):
            is_own = each.marker is None if extra == "" else each.marker is not None
            if is_own and (each.marker is None or each.marker.evaluate({"extra": extra})):
                found.setdefault(extra, []).append(each)
    return found


def _twice() -> Iterator[str]:
    """Distributions that write into the same package."""
    for names, why in _EXCLUDE:
        there = [name for name in names if _version(name) is not None]
        if len(there) > 1:
            yield f"{' and '.join(there)} are both installed: {why}; run: pip uninstall {there[-1]}, then install again"


def _unmet() -> Iterator[str]:
    """What is installed in a version that we, or what we bring, do not take."""
    ours = {each.name for requirements in _declared().values() for each in requirements}
    for requirements in _declared().values():
        for each in requirements:
            yield from _clash(DISTRIBUTION, each, missing=False)
    for each in _declared()[""]:
        yield from _clash(DISTRIBUTION, each, missing=True)
    for name in sorted(ours - {DISTRIBUTION}):
        if _version(name) is not None:
            for text in importlib.metadata.requires(name) or ():
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": ""}):
                    yield from _clash(f"{name} {_version(name)}", inner, missing=True)


def _clash(asker: str, wanted: Requirement, *, missing: bool) -> Iterator[str]:
    found, plain = _version(wanted.name), f"{wanted.name}{wanted.specifier}"
    if found is None:
        if missing:
            yield f"{asker} needs {plain}, which is not installed; run: pip install '{plain}'"
    elif not wanted.specifier.contains(found, prereleases=True):
        yield f"{asker} needs {plain}, and {found} is installed; run: pip install '{plain}'"


def _broken() -> Iterator[str]:
    """Plugins that cannot be imported; ours are found in the same way as anyone's."""
    for group in (plugins.CONVERTERS, plugins.PASSES, plugins.TARGETS, plugins.RUNNERS, plugins.ENGINES):
        for point in plugins.points(group):
            try:
                plugins.load(point)
            except plugins.BrokenPlugin as error:
                yield str(error)
            except ConvertKitError:  # a framework that is not installed: told among the extras
                continue


def _short() -> Iterator[str]:
    """A disk or a memory on which nothing fits."""
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    if free < _LEAST_DISK:
        yield f"{place} has {free / 1e9:.1f} GB left; an export needs a few times the size of its model there"
    memory = _memory_bytes()
    if memory is not None and memory < _LEAST_MEMORY:
        yield f"this machine has {memory / 1e9:.1f} GB of memory; frameworks need 2 GB and more"


@cache
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
