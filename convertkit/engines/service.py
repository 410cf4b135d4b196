"""The service that a fresh environment is tried with."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from convertkit.artifact import Array
from convertkit.workers.process import Reply


class ImportService:
    """Imports modules."""

    def imports(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Import ``names``; the file of each."""
        return Reply({name: getattr(importlib.import_module(name), "__file__", None) for name in params["names"]})
