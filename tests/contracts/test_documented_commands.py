"""Every command line that README and docs/ show is one that the tools take: flags, scripts, targets of make, files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from convertkit.commands import COMMANDS, command
from convertkit.errors import UsageError
from convertkit.options.flags import options_from
from convertkit.recipe import ExportOptions

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "fixtures").glob("*/README.md")),
)
COMMAND = re.compile(rf"\bconvertkit ({'|'.join(each.name for each in COMMANDS)})\b([^`#>\n]*)")
FLAGS_ALONE = re.compile(r"`(--[a-z][^`\n]*)`")
SCRIPT = re.compile(r"(?<![\w/])((?:bench|docs|fixtures|tests)/[\w/]+\.py)((?: [^`\n>]+)?)")
MAKE = re.compile(r"(?:^    |`)make ([^`\n]+)", re.MULTILINE)
NAMED = re.compile(r"`(?!build/)([a-z_]+(?:/[\w.-]+)+\.(?:py|toml|json|md))`")
OTHER_TOOLS = re.compile(r"migrate-from-|tensorrt")
"""Pages that name flags of other tools, too; our commands on them are looked at like everywhere."""
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""As the whole command has it: a command keeps what it was first asked with."""
SOMETHING = ("…", "[OPTIONS]", "[SOURCE]", "COMMAND", "[ARGS]...")


def text(page: Path) -> str:
    """A page with commands of several lines joined to one."""
    return re.sub(r"\\\n\s+", " ", page.read_text())


def shown(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """The page's name and the groups of each different match."""
    return sorted({(page.name, *found.groups()) for page in PAGES for found in pattern.finditer(text(page))})


def options(words: list[str]) -> ExportOptions:
    """What ``convertkit export`` makes of the words, with a source and a target where the page leaves them open."""
    whole = ["tflite" if word in SOMETHING and words[at - 1].startswith("-") else word for at, word in enumerate(words)]
    given = command("export").make_context("export", [word for word in whole if word not in SOMETHING], **HELP).params
    return options_from(
        {"source": "model.onnx"}
        | {key: value for key, value in given.items() if value and key not in ("as_json", "recipe")}
    )


@pytest.mark.parametrize(("page", "name", "rest"), shown(COMMAND))
def test_commands_are_taken(page, name, rest):
    words = shlex.split(rest)
    if name == "export" and "--help" not in words:
        options(words)
    else:
        asked, left = below(command(name), [word for word in words if word not in SOMETHING])
        if left or not isinstance(asked, click.Group):
            asked.make_context(name, left, resilient_parsing=not left, **HELP)  # a name alone, as in a heading


def below(asked: click.Command, words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that is meant, which may stand below a group, and its own words."""
    inner = asked.commands if isinstance(asked, click.Group) else {}
    at = next((at for at, word in enumerate(words) if word in inner), None)
    return (asked, words) if at is None else (inner[words[at]], words[at + 1 :])


def known_flags() -> dict[str, bool]:
    """Every flag of a command, and whether a value follows."""
    groups = [command(listed.name) for listed in COMMANDS]
    inside = (each.commands.values() if isinstance(each, click.Group) else () for each in groups)
    commands = [*groups, *(each for found in inside for each in found)]
    params = (each for found in commands for each in found.get_params(click.Context(found, **HELP)))
    return {flag: not each.is_flag for each in params if isinstance(each, click.Option) for flag in each.opts}


def of_the_plugin() -> set[str]:
    """The flags of the plugins that pages show."""
    code = (ROOT / "tests" / "plugins" / "acme" / "acme_convertkit" / "target.py").read_text()
    rknn = (ROOT / "examples" / "convertkit-rknn" / "convertkit_rknn" / "target.py").read_text()
    names = {key: re.findall(r'TargetOption\("([\w-]+)"', text) for key, text in (("c-header", code), ("rknn", rknn))}
    return {f"--{key}-{name}" for key, found in names.items() for name in found}


@pytest.mark.parametrize(("page", "text"), [each for each in shown(FLAGS_ALONE) if not OTHER_TOOLS.match(each[0])])
def test_flags_are_there(page, text):
    others = (ROOT / "bench").rglob("*.py")
    ours = (
        known_flags().keys()
        | {"--help"}
        | of_the_plugin()
        | set(re.findall(r'"(--[a-z0-9-]+)"', "".join(p.read_text() for p in others)))
    )
    assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", text)) <= ours


@pytest.mark.parametrize(("page", "script", "rest"), shown(SCRIPT))
def test_scripts_take_their_flags(page, script, rest):
    content = (ROOT / script).read_text()
    assert all(flag in content for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", rest))


@pytest.mark.parametrize(("page", "rest"), shown(MAKE))
def test_targets_of_make_are_there(page, rest):
    content = (ROOT / "Makefile").read_text()
    for word in rest.replace("…", "").split():
        name, is_variable, _ = word.partition("=")
        names = rf"^({name}:|AREA_{name.removeprefix('test-')} :=)"
        assert re.search(rf"^{name} \?=|\$\({name}\)" if is_variable else names, content, re.MULTILINE), word


@pytest.mark.parametrize(("page", "name"), shown(NAMED))
def test_named_files_are_there(page, name):
    assert (ROOT / name).is_file() or any(ROOT.glob(f"[bcdfqt]*/**/{name}")), f"{page} names {name}"


def test_a_wrong_command_is_found():
    with pytest.raises(UsageError):
        options(["model.pt", "--target", "…", "--calib-method", "guess"])
