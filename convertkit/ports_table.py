"""Inputs or outputs in the README of an artifact that knows them by their places."""

from __future__ import annotations

from collections.abc import Iterable

from convertkit.artifact import TensorSpec


def ports_table(title: str, specs: Iterable[TensorSpec]) -> str:
    """A table in Markdown: place, name in the source, sizes, type."""
    rows = "".join(
        f"| {place} | {spec.name} | {' × '.join(str(size) for size in spec.shape)} | {spec.dtype} |\n"
        for place, spec in enumerate(specs)
    )
    return f"| {title} | name in the source | sizes | type |\n|---|---|---|---|\n{rows}"
