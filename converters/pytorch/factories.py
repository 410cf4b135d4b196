"""``pkg.mod:factory`` as a source: found on disk and read as text, never imported here."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_FRAMEWORKS = frozenset(
    {"torch", "torchvision", "torchaudio", "timm", "transformers", "lightning", "pytorch_lightning"}
)


def is_torch_factory(source: str) -> bool:
    """Whether ``source`` names a callable of a module whose text imports PyTorch."""
    if not _REFERENCE.fullmatch(source):
        return False
    file = module_file(source.partition(":")[0])
    return file is not None and bool(_imports(file) & _FRAMEWORKS)


def module_file(module: str) -> Path | None:
    """The file of a module in the current folder or on ``sys.path``, None where there is none."""
    parts = Path(*module.split("."))
    for folder in (".", *sys.path):
        for candidate in (parts.with_suffix(".py"), parts / "__init__.py"):
            file = Path(folder or ".") / candidate
            if file.is_file():
                return file
    return None


def _imports(file: Path) -> set[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
