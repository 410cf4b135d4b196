"""Compiled templates, kept as Python keeps compiled modules: in ``__pycache__``, where that can be written."""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket


class BesideModules(BytecodeCache):
    """Keeps what a template in ``folder`` compiles to, for this text of it, this jinja2 and this Python.

    For one environment only, since its options are not part of the key.  Follows ``PYTHONDONTWRITEBYTECODE`` and
    ``PYTHONPYCACHEPREFIX``.  What cannot be read or written is compiled again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read what was kept of a template, if anything."""
        with suppress(OSError, EOFError, ValueError, pickle.UnpicklingError), self._path(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def get_source_checksum(self, source: str) -> str:
        """jinja2's own, and its version, whose compiled templates another version need not understand."""
        return f"{importlib.metadata.version('jinja2')} {super().get_source_checksum(source)}"

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what a template compiled to: whole or not at all, since other processes read it."""
        if sys.dont_write_bytecode:
            return
        path = self._path(bucket)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(bucket.bytecode_to_string())
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()

    def _path(self, bucket: Bucket) -> Path:
        return Path(cache_from_source(str(self._folder / f"template_{bucket.key}.py")))
