"""Names that Core ML takes."""

from __future__ import annotations

import re


def identifier(name: str) -> str:
    """``name`` with everything replaced that Core ML's names may not have."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain
