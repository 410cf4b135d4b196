"""The repository's own Python files as import facts, for the architecture tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("converters", "quantization", "targets")


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's module (dotted, absolute); ``lazy`` inside a function, ``typing`` under TYPE_CHECKING."""

    module: str
    lazy: bool
    typing: bool


@dataclass(frozen=True, slots=True)
class Module:
    """One file, by the name it is imported as."""

    name: str
    path: Path
    imports: tuple[Import, ...]

    @property
    def part(self) -> str:
        """``core``, or which of the three plugin trees it is in."""
        second = self.name.split(".")[1] if "." in self.name else ""
        return second if second in PARTS else "core"


def modules() -> dict[str, Module]:
    """Every module of the package by name."""
    return {module.name: module for module in _modules()}


def folders() -> dict[str, Path]:
    """Every folder that holds Python files, by the package name it must have."""
    return {_name(path).removesuffix(".__init__"): path.parent for path in python_files() if path.stem == "__init__"}


def python_files() -> list[Path]:
    """The package's files, each once: the symlinked trees are read at the top level."""
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    core = [path for path in (ROOT / "convertkit").rglob("*.py") if path.relative_to(ROOT).parts[1] not in PARTS]
    return sorted(path for path in core + files if "__pycache__" not in path.parts)


def _modules() -> Iterator[Module]:
    paths = python_files()
    known = {_name(path).removesuffix(".__init__") for path in paths}
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = tuple(_resolved(each, known) for each in _imports(tree, lazy=False, typing=False))
        yield Module(_name(path).removesuffix(".__init__"), path, found)


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "convertkit" else ("convertkit", *parts))


def _resolved(found: Import, known: set[str]) -> Import:
    """``from package import module`` names the module, not the package, where there is such a module."""
    owner, _, last = found.module.rpartition(".")
    return found if found.module in known or owner not in known or not last else Import(owner, found.lazy, found.typing)


def _imports(node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, lazy, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield from (Import(f"{child.module}.{alias.name}", lazy, typing) for alias in child.names)
        guarded = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, lazy=lazy or inside, typing=typing or guarded)
