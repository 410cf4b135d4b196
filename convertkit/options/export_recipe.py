"""The recipe of one export: a TOML file whose keys are the flags."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.options import flags, of_targets, recipe_files
from convertkit.options.recipe_files import RecipeFile, Tables
from convertkit.options.toml_lines import Keys


def read_recipe(path: Path, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The keys of a TOML recipe, dashes as underscores; relative paths are relative to the file that names them.

    A table ``[target.NAME]`` names a target and holds what is given for the options that it brings.  ``include`` names
    other files, whose keys the recipe overrides as the command line overrides the recipe's.  Raises ``RecipeError``
    with file and line.
    """
    return recipe_files.read(path, _checked, flags.merged, variables).tables


def _checked(file: RecipeFile) -> Tables:
    if "models" in file.tables:
        file.refuse(("models",), f"this is the recipe of a release ([models.NAME])\n  try   convertkit run {file.path}")
    keys = {each.name: each for each in flags.declared_keys()}
    found = Tables()
    for key, value in file.tables.items():
        name = key.replace("-", "_")
        if name not in keys or name == "target_options":
            file.refuse((key,), f'unknown key "{key}"{flags.closest_key(name)}')
        given = file.replaced((key,), value)
        if name == "target" and isinstance(given, dict):
            found |= of_targets.of_recipe(file, given)
            continue
        found[name] = file.beside(given) if keys[name].is_path else given
        check_value(file, (key,), name, found[name])
    return found


def check_value(file: RecipeFile, keys: Keys, name: str, value: Any) -> None:
    """Raise ``RecipeError`` at the line of a value that its flag does not take, whatever the others are."""
    if name == "target":
        check_targets(file, keys, value)
    file.checked(keys, lambda: flags.field(name, value))


def check_targets(file: RecipeFile, keys: Keys, value: Any) -> None:
    """Raise ``RecipeError`` at the line of a target that is not installed."""
    if isinstance(value, str):
        for each in value.split(","):
            file.checked(keys, partial(plugins.check_target, plugins.usual_name(each)))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            check_targets(file, (*keys, at), each)
