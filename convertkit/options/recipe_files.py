"""Reading recipes, an export's and a release's: TOML with includes and variables, and the line of every key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from convertkit.errors import RecipeError, UsageError
from convertkit.options.toml_lines import Keys, key_lines

Tables = dict[str, Any]

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\})")
_POSITION = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)")
_MOST_FILES = 100
"""A recipe and all that it includes."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a recipe and its includes say together: ``places`` has ``file:line`` by the keys that lead to a value.

    ``title`` names the recipe where no line is known: that of a release that is built again has none.
    """

    tables: Tables
    title: str
    places: Mapping[Keys, str]

    def error(self, keys: Keys, sentence: str) -> RecipeError:
        """A refusal of what ``keys`` lead to, at its line, else at that of the nearest table around it."""
        return _refusal(self.places, self.title, keys, sentence)


def _refusal(places: Mapping[Keys, str], title: str, keys: Keys, sentence: str) -> RecipeError:
    around = (keys[:length] for length in range(len(keys), 0, -1))
    return RecipeError(f"{next((places[each] for each in around if each in places), title)}: {sentence}")


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """One file of a recipe: its tables as they are written, and what its variables stand for."""

    path: Path
    tables: Tables
    places: Mapping[Keys, str]
    variables: Mapping[str, str]

    def refuse(self, keys: Keys, sentence: str) -> NoReturn:
        """Raise ``RecipeError`` at the line of what ``keys`` lead to."""
        raise _refusal(self.places, _shown(self.path), keys, sentence)

    def checked(self, keys: Keys, check: Callable[[], object]) -> None:
        """Raise what ``check`` refuses as a ``RecipeError`` at the line of ``keys``."""
        try:
            check()
        except RecipeError:
            raise
        except UsageError as error:
            self.refuse(keys, str(error))

    def mapping(self, keys: Keys, value: Any) -> Tables:
        """The value as a table; raises ``RecipeError`` where it is something else."""
        if not isinstance(value, dict):
            self.refuse(keys, f"{'.'.join(map(str, keys))} is not a table")
        return value

    def replaced(self, keys: Keys, value: Any) -> Any:
        """The value with each ``${NAME}`` and ``${NAME:-default}`` of its texts replaced; ``$$`` is a dollar."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: self._variable(keys, found), value)
        if isinstance(value, list):
            return [self.replaced((*keys, at), each) for at, each in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.replaced((*keys, key), each) for key, each in value.items()}
        return value

    def _variable(self, keys: Keys, found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        given = self.variables.get(found["name"], found["default"])
        if given is None:
            self.refuse(keys, f"the environment has no {found['name']}; set it, or write ${{{found['name']}:-…}}")
        return given

    def beside(self, value: Any) -> Any:
        """A path as it is from where the file is read; ``pkg.mod:callable`` stays."""
        if not isinstance(value, str) or not value:
            return value
        name = os.path.expanduser(value)
        if ":" in name and not (self.path.parent / name).exists():
            return name
        return os.path.normpath(self.path.parent / name)


Check = Callable[[RecipeFile], Tables]
"""The checked tables of one file."""
Merge = Callable[[Tables, Tables], Tables]
"""What two files say together; the second one wins."""


def overridden(below: Tables, above: Tables) -> Tables:
    """Tables of ``below`` with what ``above`` says instead, key by key."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = overridden(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def read(path: Path, check: Check, merge: Merge = overridden, variables: Mapping[str, str] | None = None) -> Written:
    """A recipe and what it includes, which it overrides; ``variables`` are the environment's without any.

    Raises ``RecipeError`` with the file and line of what cannot be read.
    """
    return _read(path, check, merge, os.environ if variables is None else variables, ())


def _read(path: Path, check: Check, merge: Merge, variables: Mapping[str, str], above: tuple[Path, ...]) -> Written:
    if len(above) > _MOST_FILES:
        raise RecipeError(f"{_shown(path)}: more than {_MOST_FILES} recipes include each other")
    file = _parsed(path, variables)
    included, places = Tables(), dict[Keys, str]()
    for at, each in enumerate(_includes(file)):
        keys, inner = ("include", at), Path(each)
        if inner.absolute() in (known.absolute() for known in (*above, path)):
            file.refuse(keys, f"{_shown(path)} includes {_shown(inner)}, which includes it")
        if not inner.is_file():
            file.refuse(keys, f"{_shown(inner)} {'is not a file' if inner.exists() else 'does not exist'}")
        found = _read(inner, check, merge, variables, (*above, path))
        included = merge(included, found.tables)
        places |= found.places
    return Written(merge(included, check(file)), _shown(path), places | dict(file.places))


def _includes(file: RecipeFile) -> Sequence[str]:
    named = file.tables.pop("include", [])
    several = [named] if isinstance(named, str) else named
    if not isinstance(several, list) or not all(isinstance(each, str) and each for each in several):
        file.refuse(("include",), f"include = {named!r}: expected a file or a list of files")
    return [file.beside(file.replaced(("include", at), each)) for at, each in enumerate(several)]


def _parsed(path: Path, variables: Mapping[str, str]) -> RecipeFile:
    if path.exists() and not path.is_file():
        raise RecipeError(f"{_shown(path)} is not a file")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecipeError(f"{_shown(path)} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{_shown(path)}: {error}") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(_syntax(path, text, str(error))) from error
    return RecipeFile(path, tables, _places(path, text), variables)


def _places(path: Path, text: str) -> Mapping[Keys, str]:
    """``file:line`` by keys as they are written, and with the dashes of the last one as underscores."""
    places = {keys: f"{_shown(path)}:{line}" for keys, line in key_lines(text).items()}
    plain = {(*keys[:-1], str(keys[-1]).replace("-", "_")): at for keys, at in places.items()}
    return plain | places


def _shown(path: Path) -> str:
    """A path as messages have it: short where it lies below the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _syntax(path: Path, text: str, said: str) -> str:
    """What is wrong with a text that is not TOML, at its line; TOML takes one kind of value for a key."""
    lines = [line.strip() for line in text.splitlines()]
    found = _POSITION.search(said)
    number = found["line"] if found is not None and found["line"] else max(1, len(lines))
    both = any(re.match(r"target\s*=", line) for line in lines) and any(line.startswith("[target.") for line in lines)
    hint = "; [target.NAME] names the target, so that target = … is left out beside it" if both else ""
    return f"{_shown(path)}:{number}: {_POSITION.sub('', said)}{hint}"
