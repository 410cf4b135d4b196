"""Text from the templates of a package, which stop at what they are not given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


@cache
def _environment(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # what comes from a model is quoted or made an identifier where it is put in
    )


def rendered(folder: Path, name: str, values: Mapping[str, object]) -> str:
    """The template ``name`` (without its ending) of ``folder`` with these values."""
    return _environment(folder).get_template(f"{name}.jinja").render(values)
