"""Options that targets bring: as flags, as tables of a recipe, and whether they fit the targets that are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from convertkit import plugins
from convertkit.errors import ConvertKitError, UsageError
from convertkit.options.grouped import GroupedOption
from convertkit.options.recipe_files import RecipeFile
from convertkit.options.toml_lines import Keys
from convertkit.recipe import ExportOptions
from convertkit.stage import Target
from convertkit.target_options import TargetOption, declared, flag
from convertkit.target_options import chosen as values_of


class TargetFlag(GroupedOption):
    """A flag of one target; what is given for it goes to ``target_options`` of the command."""

    def __init__(self, target: str, option: TargetOption) -> None:
        how: dict[str, Any] = {"is_flag": True} if option.is_switch else {"metavar": option.placeholder}
        dest = re.sub(r"\W", "_", f"of_target_{target}_{option.name}")
        super().__init__(
            [flag(target, option.name), dest],
            group=group(target),
            help=_help(option),
            type=None if option.is_switch else str,
            multiple=option.repeatable,
            expose_value=False,
            callback=self._keep,
            shell_complete=lambda context, parameter, begun: [
                text for text in map(str, option.choices) if text.startswith(begun)
            ],
            **how,
        )
        self._target, self._option = target, option

    def _keep(self, context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value is not None and value is not False and value != ():
            given = context.params.setdefault("target_options", {})
            given.setdefault(self._target, {})[self._option.name] = value


def _help(option: TargetOption) -> str:
    """Its line in ``--help``: what it is, its choices and its default."""
    told = [option.help.rstrip(".")]
    if option.choices:
        told.append(", ".join(map(str, option.choices)))
    default = option.default if isinstance(option.default, tuple) else (option.default,)
    usual = ", ".join(str(each) for each in default if each is not None and each is not False)
    return f"{': '.join(told)} [default: {usual}]." if usual else f"{': '.join(told)}."


def group(target: str) -> str:
    """The heading of a target's options in ``--help``."""
    return f"Target {target}"


def meant(words: Iterable[str]) -> tuple[str, ...]:
    """The installed targets whose flags may be among ``words``: no other has to be imported."""
    begun = tuple(words)
    return tuple(name for name in plugins.target_names() if any(word.startswith(flag(name, "")) for word in begun))


def flags(targets: Iterable[str], others: frozenset[str]) -> Iterator[TargetFlag]:
    """The flags of targets.  Raises ``BrokenPlugin`` for one that ``others`` or a target before it have."""
    taken = dict.fromkeys(others, "convertkit")
    for target in targets:
        for each in _flags(target):
            (spelled,) = each.opts
            if spelled in taken:
                raise plugins.BrokenPlugin(
                    f"target {target} would have the option {spelled}, which {taken[spelled]} has"
                )
            taken[spelled] = f"target {target}"
            yield each


@cache
def _flags(target: str) -> tuple[TargetFlag, ...]:
    """The same objects each time: click finds values by them."""
    options = declared(plugins.target(target))
    if fault := next((f"{each.name!r}: {each.fault}" for each in options if each.fault), ""):
        raise plugins.BrokenPlugin(f"target {target} declares the option {fault}")
    return tuple(TargetFlag(target, each) for each in options)


def sections(others: frozenset[str]) -> dict[str, list[TargetFlag] | str]:
    """What ``--help`` shows, by heading: flags, or the sentence on a target that cannot be asked for them."""
    found: dict[str, list[TargetFlag] | str] = {}
    for target in plugins.target_names():
        try:
            listed = list(flags((target,), others))
        except ConvertKitError as error:
            found[group(target)] = str(error)
            continue
        if listed:
            found[group(target)] = listed
    return found


def of_recipe(file: RecipeFile, tables: Mapping[str, Any], within: Keys = ()) -> dict[str, Any]:
    """``[target.NAME]`` tables as the targets that they name and what they say of each; paths begin at the recipe.

    A table ``[target.NAME.OTHER]`` holds options of a target that NAME packages, and does not name that one.
    ``within`` leads to the table that they stand in.  Raises ``RecipeError`` with the line of what is wrong.
    """
    named, found = list[str](), dict[str, dict[str, object]]()
    for name, table in tables.items():
        keys = (*within, "target", name)
        target = _of_table(file, keys, table)
        inner = {key: value for key, value in table.items() if _is_table_of(target, key, value)}
        named.append(target)
        own = {key: value for key, value in table.items() if key not in inner}
        for at, each in ((keys, own), *(((*keys, key), value) for key, value in inner.items())):
            other = _of_table(file, at, each)
            if each and found.get(other):
                file.refuse(at, f"{'.'.join(map(str, at))}: the options of {other} are given in another table, too")
            found[other] = {**found.get(other, {}), **_read_table(file, at, other, each)}
    return {"target": tuple(named), "target_options": {name: options for name, options in found.items() if options}}


def _of_table(file: RecipeFile, keys: Keys, table: object) -> str:
    """The target that the last of ``keys`` names; ``RecipeError`` where there is none, or ``table`` is not one."""
    if not isinstance(table, Mapping):
        told = f"expected a table of the target's options, found {table!r}"
        file.refuse(keys, f"{'.'.join(map(str, keys))}: {told}")
    target = plugins.usual_name(str(keys[-1]))
    file.checked(keys, partial(plugins.target, target))
    return target


def _is_table_of(target: str, key: str, value: object) -> bool:
    """Whether a key of a target's table holds options of another target."""
    names = {each.name for each in declared(plugins.target(target))}
    return isinstance(value, Mapping) and key.replace("_", "-") not in names


def _read_table(file: RecipeFile, keys: Keys, target: str, table: Mapping[str, object]) -> dict[str, object]:
    found = {key: _from(file, target, key, value) for key, value in table.items()}
    for key, value in found.items():
        file.checked((*keys, key), partial(_try, target, key, value))
    return found


def _from(file: RecipeFile, target: str, key: str, value: object) -> object:
    """What a recipe gives for one option; a relative path is one from the recipe's folder."""
    paths = {each.name for each in declared(plugins.target(target)) if each.type is Path}
    if key.replace("_", "-") not in paths:
        return value
    return [_beside(file.path, each) for each in value] if isinstance(value, list) else _beside(file.path, value)


def _try(target: str, key: str, value: object) -> None:
    values_of(plugins.target(target), ExportOptions("", target_options={target: {key: value}}))


def _beside(recipe: Path, value: object) -> object:
    if isinstance(value, str) and value and value[0] != "~" and not Path(value).is_absolute():
        return str(recipe.parent / value)
    return value


def merged(recipe: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """``target_options`` of a recipe and of the command line, which wins.

    Of the recipe's only those that reach what is still to be exported: targets that are named, and what they package.
    """
    ours, theirs = given(recipe.get("target_options", {})), given(chosen.get("target_options", {}))
    both = {name: {**ours.get(name, {}), **theirs.get(name, {})} for name in {**ours, **theirs}}
    if "target" in chosen and ours:
        named = {plugins.usual_name(name) for text in _several(chosen["target"]) for name in str(text).split(",")}
        used = {*theirs, *named, *reached(named, both)}
        both = {name: options for name, options in both.items() if name in used}
    return {"target_options": both} if ours or theirs else {}


def reached(names: Iterable[str], given: Mapping[str, Mapping[str, object]]) -> set[str]:
    """The targets whose options an export to the targets ``names`` reads: these, and those that they package."""
    options = ExportOptions("", target_options=given)
    found = [plugins.target(name) for name in names if name in plugins.target_names()]
    return {part.name for each in found for part in plugins.parts_of(each, options)}


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def given(value: object) -> dict[str, dict[str, object]]:
    """``target_options`` as the caller wrote it, with the names that targets have here."""
    if not isinstance(value, Mapping) or not all(isinstance(each, Mapping) for each in value.values()):
        raise UsageError(f'target_options: expected {{"TARGET": {{"OPTION": VALUE}}}}, found {value!r}')
    return {plugins.usual_name(str(name)): dict(options) for name, options in value.items()}


def check(options: ExportOptions, targets: Sequence[Target]) -> None:
    """Raise ``UsageError`` for an option that no part of the export has, or a value that it does not take."""
    asked = {each.name: each for each in targets}
    parts = {part.name: part for target in targets for part in plugins.parts_of(target, options)}
    for name, found in given(options.target_options).items():
        if name not in parts and found:
            first = next(iter(found)).replace("_", "-")
            if name not in plugins.target_names():
                plugins.target(name)
            raise UsageError(f"{flag(name, first)} does nothing for {' or '.join(asked)}; it is for --target {name}")
    for part in parts.values():
        values_of(part, options)
