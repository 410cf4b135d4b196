"""How wheel and sdist are built: with setuptools, from a copy, so that `pip install .` leaves nothing in the tree.

Kept to the syntax of old Pythons, which get one sentence instead of a resolver's search.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):
    sys.exit("convertkit needs Python 3.11 or newer; this is Python " + sys.version.split()[0])

from setuptools import build_meta

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Settings = Mapping[str, object] | None

_SHIPPED = (
    "LICENSE",
    "README.md",
    "build_backend.py",
    "constraints.txt",
    "converters",
    "convertkit",
    "pyproject.toml",
    "quantization",
    "targets",
)
_TRACES = ("build", "*.egg-info")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Nothing but what pyproject.toml names."""
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the wheel; its file name."""
    with _copy():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build the sdist; its file name."""
    with _copy():
        Path("MANIFEST.in").write_text("include build_backend.py constraints.txt\n")
        return build_meta.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata of the wheel; its folder's name."""
    with _copy():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata of an editable installation; its folder's name."""
    with _swept():
        return build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel that points into this tree; its file name."""
    with _swept():
        return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)


@contextlib.contextmanager
def _copy() -> Iterator[None]:
    """Work in a copy of what is shipped."""
    here = Path.cwd()
    ignored = shutil.ignore_patterns("__pycache__", *_TRACES)
    with tempfile.TemporaryDirectory(prefix="convertkit-build-") as place:
        for name in _SHIPPED:
            if (here / name).is_dir():
                shutil.copytree(here / name, Path(place, name), symlinks=True, ignore=ignored)
            else:
                shutil.copy2(here / name, place)
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(here)


@contextlib.contextmanager
def _swept() -> Iterator[None]:
    """Work here, and remove what was not there before."""
    before = {path for pattern in _TRACES for path in Path().glob(pattern)}
    try:
        yield
    finally:
        for path in {path for pattern in _TRACES for path in Path().glob(pattern)} - before:
            shutil.rmtree(path)
