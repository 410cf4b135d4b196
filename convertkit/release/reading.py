"""Reading a recipe: TOML with includes and variables, every key checked where it is written."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.errors import RecipeError
from convertkit.options import flags, of_targets
from convertkit.references import closest
from convertkit.release.gates import GATES
from convertkit.release.recipe import OWN_KEYS, RELEASE_KEYS, TOP_KEYS

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\})")
_PATHS = frozenset({"license_file", "baseline", "output"})
_CELL_KEYS = ("gates", "required", "skip", "target")
_TABLE_KEYS = ("targets", "precisions", "gates", "required", "cells", "target")
_MODEL_KEYS = ("source", "license", "license_file", *_TABLE_KEYS)
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(/[A-Za-z0-9][\w.+-]*)*")
_MOST_FILES = 100
"""A recipe and all that it includes."""

Tables = dict[str, Any]


def option_keys() -> tuple[str, ...]:
    """Keys of an export that a table of a recipe takes."""
    return tuple(key.name for key in flags.declared_keys() if key.name not in OWN_KEYS)


def read_tables(path: Path, variables: Mapping[str, str] | None = None) -> Tables:
    """The tables of a recipe and of what it includes, which it overrides; variables replaced and paths absolute.

    ``variables`` are those of the environment without any.  Raises ``RecipeError`` with the line and the closest key.
    """
    return _read(path.expanduser().absolute(), os.environ if variables is None else variables, ())


def _read(path: Path, variables: Mapping[str, str], above: tuple[Path, ...]) -> Tables:
    if path in above:
        raise RecipeError(f"{above[-1]} includes {path}, which includes it")
    if len(above) > _MOST_FILES:
        raise RecipeError(f"{path}: more than {_MOST_FILES} recipes include each other")
    text, raw = _parsed(path)
    file = _File(path, text, variables)
    tables = file.tables(raw)
    merged: Tables = {}
    for each in tables.pop("include", ()):
        merged = overridden(merged, _read(Path(each), variables, (*above, path)))
    return overridden(merged, tables)


def _parsed(path: Path) -> tuple[str, Tables]:
    if path.exists() and not path.is_file():
        raise RecipeError(f"{path} is not a file")
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except FileNotFoundError as error:
        raise RecipeError(f"{path} does not exist") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path}: {error}") from error


def overridden(below: Tables, above: Tables) -> Tables:
    """Tables of ``below`` with what ``above`` says instead, key by key."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = overridden(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def path_keys() -> frozenset[str]:
    """Keys whose values are paths."""
    return _PATHS | {each.name for each in flags.declared_keys() if each.is_path}


def relative(tables: Any, root: Path, key: str = "") -> Any:
    """Tables with absolute paths as they are from ``root``; :func:`absolute` is the way back."""
    if isinstance(tables, Mapping):
        of_target = key == "target" or key.startswith("target.")
        return {name: relative(value, root, f"target.{name}" if of_target else name) for name, value in tables.items()}
    is_path = key in path_keys() or key.startswith("target.")
    if is_path and isinstance(tables, list):
        return [relative(each, root, key) for each in tables]
    return os.path.relpath(tables, root) if is_path and isinstance(tables, str) and os.path.isabs(tables) else tables


def absolute(tables: Any, root: Path, key: str = "") -> Any:
    """Tables whose paths are relative to ``root``, with absolute ones."""
    if key == "target" and isinstance(tables, Mapping):
        return of_targets.of_recipe(root / "recipe.toml", "", tables)["target_options"]
    if isinstance(tables, Mapping):
        return {name: absolute(value, root, name) for name, value in tables.items()}
    if isinstance(tables, str) and key in path_keys() and ":" not in tables:
        return os.path.normpath(root / tables)
    return tables


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a recipe: what is written in it is checked here, where its lines are known."""

    path: Path
    text: str
    variables: Mapping[str, str]

    def tables(self, raw: Tables) -> Tables:
        keys = {each.name for each in flags.declared_keys()}
        export = [key for key, value in raw.items() if key.replace("-", "_") in keys and not isinstance(value, dict)]
        if export and not set(raw) & set(TOP_KEYS):
            raise RecipeError(
                f"{self.path} is the recipe of one export ({export[0]} = …)\n"
                f"  try   convertkit export --recipe {self.path}\n"
                "  try   [models.NAME] with source = … for a release"
            )
        found = {self._known(key, TOP_KEYS, ""): value for key, value in raw.items()}
        if isinstance(found.get("include"), str):
            found["include"] = [found["include"]]
        if "include" in found:
            found["include"] = [self._beside(self._replaced(each)) for each in found["include"]]
        if "release" in found:
            found["release"] = self._plain(found["release"], RELEASE_KEYS, "release")
        if "defaults" in found:
            found["defaults"] = self._table(found["defaults"], _TABLE_KEYS, "defaults")
        if "models" in found:
            models = self._mapping(found["models"], "models")
            found["models"] = {self._name(name): self._model(name, each) for name, each in models.items()}
        return found

    def _name(self, name: str) -> str:
        if not _MODEL_NAME.fullmatch(name):
            raise self._error(name, f'"{name}" does not name a model; write letters, digits, . _ - and / between parts')
        return name

    def _model(self, name: str, value: Any) -> Tables:
        return self._table(value, _MODEL_KEYS, f"models.{name}")

    def _table(self, value: Any, own: tuple[str, ...], title: str) -> Tables:
        keys = (*own, *option_keys())
        table = {self._known(key, keys, title): each for key, each in self._mapping(value, title).items()}
        cells = self._mapping(table.pop("cells", {}), f"{title}.cells")
        gates = self._mapping(table.pop("gates", {}), f"{title}.gates")
        found = {key: self._value(key, each) for key, each in table.items()}
        if gates:
            found["gates"] = self._plain(gates, tuple(GATES), f"{title}.gates")
        if cells:
            found["cells"] = {
                pattern: self._table(each, _CELL_KEYS, f"{title}.cells.{pattern}") for pattern, each in cells.items()
            }
        return found

    def _plain(self, value: Any, keys: tuple[str, ...], title: str) -> Tables:
        found = self._mapping(value, title)
        return {self._known(key, keys, title): self._value(key, each) for key, each in found.items()}

    def _mapping(self, value: Any, title: str) -> Tables:
        if not isinstance(value, dict):
            raise self._error(title.rpartition(".")[2], f"{title} is not a table")
        return value

    def _known(self, key: str, keys: tuple[str, ...], title: str) -> str:
        name = key.replace("-", "_")
        if name in keys:
            return name
        where = f" in [{title}]" if title else ""
        if name in OWN_KEYS:
            raise self._error(key, f'"{key}"{where} is {_ELSEWHERE.get(name, "said with a flag of convertkit run")}')
        raise self._error(key, f'unknown key "{key}"{where}{closest(name, keys)}')

    def _value(self, key: str, value: Any) -> Any:
        """The value with variables replaced, and a path of this file's folder."""
        replaced = self._replaced(value)
        if key == "target" and isinstance(replaced, dict):
            return of_targets.of_recipe(self.path, self.text, replaced)["target_options"]
        return self._beside(replaced) if key.replace("-", "_") in path_keys() else replaced

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: self._variable(value, found), value)
        if isinstance(value, list):
            return [self._replaced(each) for each in value]
        return {key: self._replaced(each) for key, each in value.items()} if isinstance(value, dict) else value

    def _variable(self, text: str, found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        given = self.variables.get(found["name"], found["default"])
        if given is None:
            raise self._error(text, f"the environment has no {found['name']}; set it, or write ${{{found['name']}:-…}}")
        return given

    def _beside(self, value: Any) -> Any:
        """A path as it is from anywhere; ``pkg.mod:callable`` stays."""
        if not isinstance(value, str) or not value:
            return value
        name = os.path.expanduser(value)
        if ":" in name and not (self.path.parent / name).exists():
            return name
        return os.path.normpath(self.path.parent / name)

    def _error(self, sought: str, sentence: str) -> RecipeError:
        lines = self.text.splitlines()
        number = next((number for number, line in enumerate(lines, 1) if sought in line), 1)
        return RecipeError(f"{self.path}:{number}: {sentence}")


_ELSEWHERE = {
    "target": 'written in the plural: targets = ["tflite"]',
    "max_drop": "a gate: gates = { max_drop = 0.5 }",
    "source": "what a model's own table says",
    "output": "what [release] says",
    **{name: f'a precision: precisions = ["{name}"]' for name in ("int8", "int16x8", "fp16", "w8", "w4", "float32")},
}
