"""A flag that stands in a group of ``--help``."""

from __future__ import annotations

from typing import Any

import click


class GroupedOption(click.Option):
    """A flag of ``convertkit export`` with the heading below which ``--help`` shows it."""

    def __init__(self, *declared: Any, group: str, **how: Any) -> None:
        super().__init__(*declared, **how)
        self.group = group
