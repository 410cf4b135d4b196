"""The published shape of ``release.json``."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) that every ``release.json`` fulfils."""
    text = resources.files("convertkit.release").joinpath("release.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
