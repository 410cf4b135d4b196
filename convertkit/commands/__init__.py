"""The commands of ``convertkit``, each a module that is imported when it is called; what they do is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import click

EXIT_CODES = """\b
Exit codes: 0 done · 1 failed · 2 usage · 3 verification or accuracy gate failed · 4 framework not installed"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as ``convertkit --help`` lists it."""

    name: str
    section: str
    summary: str
    module: str = ""
    """Its module in this package, which holds it as ``command``; its name without one."""

    def load(self) -> click.Command:
        """Import the command."""
        loaded: click.Command = import_module(f"{__name__}.{self.module or self.name}").command
        return loaded


COMMANDS = (
    Listed("export", "Convert", "Convert a model, verified at every step."),
    Listed("inspect", "Look and compare", "Show what is in a model: interface, operators, size, precision."),
    Listed("check", "Look and compare", "Tell for which targets a model converts, and what is in the way."),
    Listed("diff", "Look and compare", "Show what differs between two models."),
    Listed("bisect", "Look and compare", "Find the first value inside of two models that differs."),
    Listed("bench", "Look and compare", "Measure latency, memory and size, beside a baseline."),
    Listed("run", "Release", "Make a release: many models, targets and precisions, with gates."),
    Listed("init", "Release", "Write a commented recipe for a model."),
    Listed("verify", "Release", "Check a release, or that two models compute the same."),
    Listed("reproduce", "Release", "Build a release again and compare byte by byte."),
    Listed("doctor", "Set up", "Tell what does not go together here, and what is missing."),
    Listed("targets", "Set up", "List targets and sources: what is installed, and what adds the rest."),
    Listed("engines", "Set up", "Install compilers and runtimes that need an environment of their own."),
    Listed("cache", "Set up", "Show what a cache of exports holds, or make it smaller."),
)
"""In the order in which ``--help`` shows them."""
LOGGING = frozenset({"export", "run", "verify", "reproduce", "bisect"})
"""Those that have ``--log-json``."""


def command(name: str) -> click.Command:
    """The command of this name; ``KeyError`` where there is none."""
    return {each.name: each for each in COMMANDS}[name].load()
