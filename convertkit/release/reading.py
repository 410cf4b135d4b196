"""Reading a recipe: TOML with includes and variables, every key checked where it is written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.options import export_recipe, flags, of_targets, recipe_files
from convertkit.options.recipe_files import RecipeFile, Tables, Written
from convertkit.options.toml_lines import Keys
from convertkit.references import closest
from convertkit.release.gates import GATES
from convertkit.release.recipe import OWN_KEYS, RELEASE_KEYS, TOP_KEYS

_PATHS = frozenset({"license_file", "baseline", "output"})
_CELL_KEYS = ("gates", "required", "skip", "target")
_TABLE_KEYS = ("targets", "precisions", "gates", "required", "cells", "target")
_MODEL_KEYS = ("source", "license", "license_file", *_TABLE_KEYS)
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(/[A-Za-z0-9][\w.+-]*)*")


def option_keys() -> tuple[str, ...]:
    """Keys of an export that a table of a recipe takes."""
    return tuple(key.name for key in flags.declared_keys() if key.name not in OWN_KEYS)


def read_tables(path: Path, variables: Mapping[str, str] | None = None) -> Written:
    """The tables of a recipe and of what it includes, which it overrides; variables replaced and paths absolute.

    ``variables`` are those of the environment without any.  Raises ``RecipeError`` with the line and the closest key.
    """
    return recipe_files.read(path.expanduser().absolute(), lambda file: _Checked(file).tables(), variables=variables)


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
        return of_targets.of_recipe(RecipeFile(root / "recipe.toml", {}, {}, {}), tables)["target_options"]
    if isinstance(tables, Mapping):
        return {name: absolute(value, root, name) for name, value in tables.items()}
    if isinstance(tables, str) and key in path_keys() and ":" not in tables:
        return os.path.normpath(root / tables)
    return tables


@dataclass(frozen=True, slots=True)
class _Checked:
    """One file of a recipe: what is written in it is checked here, where its lines are known."""

    file: RecipeFile

    def tables(self) -> Tables:
        raw = self.file.tables
        keys = {each.name for each in flags.declared_keys()}
        export = [key for key, value in raw.items() if key.replace("-", "_") in keys and not isinstance(value, dict)]
        if export and not set(raw) & set(TOP_KEYS):
            self.file.refuse(
                (export[0],),
                f"this is the recipe of one export ({export[0]} = …)\n"
                f"  try   convertkit export --recipe {self.file.path}\n"
                "  try   [models.NAME] with source = … for a release",
            )
        found = {self._known((), key, TOP_KEYS): value for key, value in raw.items()}
        if "release" in found:
            found["release"] = self._plain(("release",), found["release"], RELEASE_KEYS)
        if "defaults" in found:
            found["defaults"] = self._table(("defaults",), found["defaults"], _TABLE_KEYS)
        if "models" in found:
            models = self.file.mapping(("models",), found["models"])
            found["models"] = {name: self._model(name, each) for name, each in models.items()}
        return found

    def _model(self, name: str, value: Any) -> Tables:
        if not _MODEL_NAME.fullmatch(name):
            self.file.refuse(
                ("models", name), f'"{name}" does not name a model; write letters, digits, . _ - and / between parts'
            )
        return self._table(("models", name), value, _MODEL_KEYS)

    def _table(self, at: Keys, value: Any, own: tuple[str, ...]) -> Tables:
        keys = (*own, *option_keys())
        given = self.file.mapping(at, value)
        found = Tables()
        for key, each in given.items():
            name = self._known(at, key, keys)
            if name == "gates":
                found[name] = self._plain((*at, key), each, tuple(GATES))
            elif name == "cells":
                cells = self.file.mapping((*at, key), each)
                found[name] = {
                    pattern: self._table((*at, key, pattern), of, _CELL_KEYS) for pattern, of in cells.items()
                }
            else:
                found[name] = self._value((*at, key), name, each)
        return found

    def _plain(self, at: Keys, value: Any, keys: tuple[str, ...]) -> Tables:
        found = Tables()
        for key, each in self.file.mapping(at, value).items():
            name = self._known(at, key, keys)
            found[name] = self._beside(name, self.file.replaced((*at, key), each))
        return found

    def _known(self, at: Keys, key: str, keys: tuple[str, ...]) -> str:
        name = key.replace("-", "_")
        where = f" in [{'.'.join(map(str, at))}]" if at else ""
        if name not in keys and name in OWN_KEYS:
            said = _ELSEWHERE.get(name, "said with a flag of convertkit run")
            self.file.refuse((*at, key), f'"{key}"{where} is {said}')
        if name not in keys:
            self.file.refuse((*at, key), f'unknown key "{key}"{where}{closest(name, keys)}')
        return name

    def _value(self, at: Keys, name: str, value: Any) -> Any:
        """The value with variables replaced, and a path of this file's folder; checked where an export has the key."""
        replaced = self.file.replaced(at, value)
        if name == "target" and isinstance(replaced, dict):
            return of_targets.of_recipe(self.file, replaced, at[:-1])["target_options"]
        found = self._beside(name, replaced)
        if name == "targets":
            export_recipe.check_targets(self.file, at, found)
        elif name in option_keys():
            export_recipe.check_value(self.file, at, name, found)
        return found

    def _beside(self, name: str, value: Any) -> Any:
        return self.file.beside(value) if name in path_keys() else value


_ELSEWHERE = {
    "target": 'written in the plural: targets = ["tflite"]',
    "max_drop": "a gate: gates = { max_drop = 0.5 }",
    "source": "what a model's own table says",
    "output": "what [release] says",
    **{
        name: f'a precision: precisions = ["{name}"]'
        for name in ("int8", "int16x8", "fp16", "w8", "w4", "fp8", "bf16", "float32")
    },
}
