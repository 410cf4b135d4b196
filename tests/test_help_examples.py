"""Every command shows examples below its help, and each of them is a line that the command takes."""

import re
import shlex

import click
import pytest

from convertkit.cli import cli
from convertkit.commands import COMMANDS

_EXAMPLE = re.compile(r"^ +convertkit (.+)$", re.MULTILINE)


def leaves(command, words):
    """A command, or the commands of its group, with the words that call each."""
    if not isinstance(command, click.Group):
        return [(words, command)]
    return [leaf for name, each in command.commands.items() for leaf in leaves(each, (*words, name))]


LEAVES = dict(leaf for each in COMMANDS for leaf in leaves(each.load(), (each.name,)))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_examples_are_lines_that_the_command_takes(words):
    help_text = LEAVES[words].get_help(click.Context(LEAVES[words], info_name=" ".join(words)))
    lines = [shlex.split(line) for line in _EXAMPLE.findall(help_text)]
    assert any(tuple(line[: len(words)]) == words for line in lines), "no example of it"
    for line in lines:
        parse(cli, line)


def parse(command, line):
    """Take the words apart as click does; raises ``UsageError`` for a flag, a value or an argument that is wrong."""
    context = command.make_context("convertkit", list(line), resilient_parsing=False)
    while isinstance(context.command, click.Group):
        name, found, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", ["run r.toml --onyl a", "cache prune --older x", "bench -x", "diff a.onnx"])
def test_what_no_command_takes_is_refused(line):
    with pytest.raises(click.UsageError):
        parse(cli, line.split())
