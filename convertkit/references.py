"""``pkg.mod:callable`` as a source: found on disk and read as text, never imported here.

Which converter a callable belongs to is seen from what its module imports.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

from convertkit.errors import ConvertKitError

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def imports_of(source: str) -> frozenset[str]:
    """Top-level packages that the module of ``pkg.mod:callable`` imports; empty where it is no such thing."""
    if not _REFERENCE.fullmatch(source):
        return frozenset()
    file = module_file(source.partition(":")[0])
    return frozenset() if file is None else _imports(file)


def module_file(module: str) -> Path | None:
    """The file of a module in the current folder or on ``sys.path``, None where there is none."""
    parts = Path(*module.split("."))
    for folder in (".", *sys.path):
        for candidate in (parts.with_suffix(".py"), parts / "__init__.py"):
            file = Path(folder or ".") / candidate
            if file.is_file():
                return file
    return None


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


def _imports(file: Path) -> frozenset[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names)
