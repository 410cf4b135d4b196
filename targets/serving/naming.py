"""The name under which a server knows a model."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
LONGEST = 63
"""Characters of a name in Kubernetes (a DNS label)."""


def model_name(text: str) -> str:
    """``text``, where every server and Kubernetes take it as a name; ``ValueError`` says what was expected."""
    if not _NAME.fullmatch(text) or len(text) > LONGEST:
        raise ValueError("expected at most 63 lower-case letters, digits and dashes, with no dash at an end")
    return text


def storage_uri(text: str) -> str:
    """``text``, where it names a place for KServe's storage initializer; ``ValueError`` says what was expected."""
    if not _URI.fullmatch(text):
        raise ValueError("expected SCHEME://PLACE, for example s3://bucket/models")
    return text


def name_of(source: str) -> str:
    """A name made of the source's: ``Model v2.pt`` becomes ``model-v2``."""
    stem = Path(source.rpartition(":")[2] or source).stem.lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:LONGEST].strip("-") or "model"
