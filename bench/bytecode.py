"""The state in which pip leaves a package: with its bytecode written."""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

import convertkit


def write_bytecode() -> None:
    """Compile convertkit's modules as an installation does, so that no timed process has to.

    A checkout has none where ``PYTHONDONTWRITEBYTECODE`` is set, and then every start compiles all that it imports, a
    seventh of a small export's processor time; peers are timed as they were installed.
    """
    root = Path(convertkit.__file__).parent
    for folder in (root, *(root / part for part in ("converters", "quantization", "targets"))):
        if not compileall.compile_dir(folder.resolve(), quiet=1):
            sys.exit(f"{folder} cannot be compiled")
