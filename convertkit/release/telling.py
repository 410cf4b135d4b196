"""A release in words and rows, for the terminal and for ``--json``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convertkit.release.result import CellResult, Release


def as_json(release: Release) -> dict[str, Any]:
    """The release as ``--json`` has it."""
    return {
        "name": release.name,
        "passed": release.passed,
        "folder": str(release.path),
        "cells": [each.as_json() for each in release.cells],
    }


def line(result: CellResult) -> str:
    """A cell that is done, in one line."""
    from convertkit.show import size_text

    mark = "ok  " if result.passed else "FAIL"
    time = "cached" if result.cached else f"{result.seconds:.2f} s"
    size = "" if result.size_bytes is None else size_text(result.size_bytes)
    said = result.error.splitlines()[0] if result.error else ""
    return f"{mark} {result.name:<40} {time:>9} {size:>9}  {said}".rstrip()


def table(release: Release) -> Iterator[str]:
    """All cells beside each other."""
    from convertkit.show import aligned, size_text

    rows: list[tuple[str, ...]] = [("cell", "passed", "size", "latency", "accuracy", "change")]
    for each in release.cells:
        rows.append(
            (
                each.name,
                "yes" if each.passed else "NO" if each.required else "no, not required",
                "" if each.size_bytes is None else size_text(each.size_bytes),
                "" if each.latency_ms is None else f"{each.latency_ms:.3f} ms",
                "" if each.accuracy is None else f"{each.metric} {each.accuracy:.4g}",
                change_text(each),
            )
        )
    yield from aligned(rows, right=(2, 3))


def change_text(result: CellResult) -> str:
    """How a cell differs from the baseline's: ``size × 0.98, latency × 1.02, accuracy + 0.1``."""
    change = dict(result.change or {})
    moved = change.pop("accuracy", None)
    words = [f"{name} × {ratio:.3g}" for name, ratio in change.items()]
    return ", ".join([*words, *([] if moved is None else [f"accuracy {moved:+.3g}"])])
