"""The recipe of a release as a value, and the keys that its tables have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from convertkit.options.recipe_files import Written
from convertkit.recipe import Precision

PRECISIONS: tuple[str, ...] = get_args(Precision)
TOP_KEYS = ("include", "release", "defaults", "models")
RELEASE_KEYS = ("name", "version", "output", "baseline", "golden")
OWN_KEYS = frozenset(
    {"source", "target", *PRECISIONS, "output", "force", "keep_failed", "verbose", "jobs", "cache", "no_cache"}
    | {"scheduler", "max_drop", "target_options"}
)
"""Keys of an export's recipe that mean something else here, or are said for the whole run."""
GOLDEN = 3
"""Sample inputs whose outputs a release holds, where the recipe names no other number."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a table of a recipe says: ``options`` are those of an export, by the names of its flags.

    ``gates`` are limits by the names of :mod:`convertkit.release.gates`.  None and empty are what it leaves to others.
    """

    targets: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    gates: Mapping[str, Any] = field(default_factory=dict)
    required: bool | None = None
    skip: bool | None = None
    cells: Mapping[str, Table] = field(default_factory=dict)
    """By pattern, ``TARGET:PRECISION``."""


@dataclass(frozen=True, slots=True)
class Model:
    """A table ``[models.NAME]``: ``license`` is an SPDX expression, ``license_file`` the text that goes with it."""

    name: str
    source: str
    table: Table
    license: str | None = None
    license_file: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe with its includes, its variables replaced and its paths absolute.

    ``root`` is the folder of the recipe.  ``written`` is what it says as plain values, and where.
    """

    root: Path
    name: str
    version: str | None
    output: Path
    baseline: Path | None
    golden: int
    defaults: Table
    models: tuple[Model, ...]
    written: Written
