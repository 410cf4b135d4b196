"""``pkg.mod:callable`` and ``folder/file.py:callable``: found on disk and read as text; workers import it.

Which converter a callable belongs to is seen from what its module imports, itself or through other modules.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from convertkit.errors import ConvertKitError
from convertkit.lookalikes import elsewhere
from convertkit.syntax import parsed

_REFERENCE = re.compile(r"(?:[A-Za-z_][\w.]*|.+\.py):[A-Za-z_][\w.]*")
_MOST_FILES = 400
"""Modules that are read before a callable counts as one of no framework."""
_BY_NAME = frozenset({"import_module", "__import__"})


def imports_of(source: str, sought: frozenset[str]) -> frozenset[str]:
    """Which of the top-level packages ``sought`` the module of ``pkg.mod:callable`` imports.

    Where it imports none itself, those of the nearest modules that it imports; empty where none does.
    """
    if not _REFERENCE.fullmatch(source):
        return frozenset()
    waiting: Sequence[str] = [source.partition(":")[0]]
    seen: dict[str, Path | None] = {}
    while waiting and len(seen) < _MOST_FILES:
        fresh = {name: module_file(name) for name in _with_parents(waiting) if name not in seen}
        seen |= fresh
        waiting = [each for name, file in fresh.items() if file is not None for each in _imports(name, file)]
        if found := sought.intersection(name.partition(".")[0] for name in waiting):
            return found
        waiting = [name for name in waiting if name.partition(".")[0] not in sys.stdlib_module_names]
    return frozenset()


def module_file(module: str) -> Path | None:
    """The file of a module, named with dots or as ``folder/file.py``, None where there is none.

    Names with dots are looked for in the current folder and where Python looks.
    """
    if module.endswith(".py"):
        return Path(module) if Path(module).is_file() else None
    return next((file for file in _candidates(module.split(".")) if file.is_file()), None)


def imported(module: str) -> ModuleType:
    """The module that ``module`` names, with dots or as ``folder/file.py``; its code runs.

    The current folder is importable, as for ``python -m``; the folder of a file, too, as for ``python folder/file.py``.
    """
    _importable(Path.cwd())
    if not module.endswith(".py"):
        return importlib.import_module(module)
    file = Path(module).resolve()
    if not file.is_file():
        raise ModuleNotFoundError(f"there is no file {module}")
    _importable(file.parent)
    if getattr(sys.modules.get(file.stem), "__file__", None) == str(file):
        return sys.modules[file.stem]
    name = file.stem if file.stem not in sys.modules else f"_{file.stem}_of_a_file"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None, "files that end in .py have one"
    sys.modules[name] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _candidates(parts: Sequence[str]) -> Iterator[Path]:
    yield from _within(Path(), parts)
    try:
        spec = importlib.util.find_spec(parts[0])  # a package is not imported to be found, only what encloses it
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if len(parts) == 1 and spec.origin is not None:
        yield Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        yield from _within(Path(folder), parts[1:])


def _within(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    place = folder.joinpath(*parts)
    if parts:
        yield place.with_name(f"{place.name}.py")
    yield place / "__init__.py"


def not_found(source: str) -> str:
    """Why nothing reads ``source``, which is not a file: as far as it is a reference, what is wrong with it."""
    name = source.partition(":")[0]
    if not _REFERENCE.fullmatch(source):
        near = closest(Path(source).name, _beside(source))
        return (None if near else elsewhere(source)) or f"{source} does not exist{near}"
    if module_file(name) is None and name.endswith(".py"):
        return f"{source}: there is no file {name}{closest(name, [file.name for file in Path().glob('*.py')])}"
    if module_file(name) is None:
        here = [file.stem for file in Path().glob("*.py")]
        return f"{source}: there is no module {name} in the current folder or where Python looks{closest(name, here)}"
    return (
        f"{source}: neither {name} nor a module that it imports names a framework, so it is not known whose model this"
        f" is\n  try   an import of the framework in {name}, for instance: import torch"
    )


def _beside(source: str) -> list[str]:
    """The names of what lies in the folder in which ``source`` was looked for."""
    try:
        return sorted(entry.name for entry in Path(source).parent.iterdir())
    except OSError:
        return []


def closest(name: str, known: Sequence[str]) -> str:
    """The words that end a sentence on an unknown name where a known one is like it."""
    close = difflib.get_close_matches(name, known, 1)
    return f", did you mean {close[0]!r}" if close else ""


def python_file(file: Path) -> str:
    """Why a file of Python is not a source, and what to write instead."""
    return f"{file} is Python; name the function in it that makes the model: {_dotted(file)}:FUNCTION"


def _dotted(file: Path) -> str:
    return ".".join(part for part in file.with_suffix("").parts if part not in ("/", ".", ".."))


def found_at(text: str, refusal: type[ConvertKitError]) -> Path | None:
    """The file or folder that a user named, None where there is none; ``refusal`` where it cannot be read again."""
    path = Path(text)
    try:
        there, usual = path.exists(), path.is_file() or path.is_dir()
    except OSError as error:  # a folder on the way that is closed, a name that is too long
        raise refusal(f"{text} cannot be read: {error.strerror}") from error
    if there and not usual:
        raise refusal(f"{text} is a pipe or a device, which is read once; expected a file or a folder")
    if there and not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise refusal(f"{text} cannot be read: permission denied")
    return path if there else None


def _with_parents(names: Sequence[str]) -> Iterator[str]:
    """The modules that are executed when those are imported."""
    yield from (name for name in names if name.endswith(".py"))
    for name in (name for name in names if not name.endswith(".py")):
        parts = name.split(".")
        yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _imports(name: str, file: Path) -> Iterator[str]:
    """What a module names in its imports, relative ones resolved; names that are not modules among them."""
    if file.suffix != ".py":
        return
    try:
        tree = parsed(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names if base)
        elif isinstance(node, ast.Call) and (named := _imported_by_name(node)):
            yield named


def _imported_by_name(call: ast.Call) -> str:
    """``torch`` of ``importlib.import_module("torch")``; empty for other calls."""
    match call:
        case ast.Call(
            func=ast.Name(id=function) | ast.Attribute(attr=function), args=[ast.Constant(value=str(name)), *_]
        ) if function in _BY_NAME:
            return name
    return ""
