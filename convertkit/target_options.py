"""Options that a target declares for itself, beside the flags that all targets have: typed, with their help."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dis import opname
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from convertkit.errors import UsageError

if TYPE_CHECKING:
    from convertkit.recipe import ExportOptions

Kind = Callable[[str], Any]
"""``int``, ``float``, ``str``, ``bool``, ``pathlib.Path``, or a function that reads text."""
Given = Mapping[str, Mapping[str, object]]
"""By target and option, with dashes: what a user chose, as text or as the value that it stands for."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_METAVARS: Mapping[Kind, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True, slots=True)
class TargetOption:
    """One option: ``--<target>-<name>``, a key of ``[target.<target>]`` in a recipe, ``target_options`` in Python.

    ``name`` has lower-case words with dashes between them.  ``type`` is ``int``, ``float``, ``str``, ``bool`` (a
    switch, off without it), ``pathlib.Path`` (a file or folder that is there), or a function from text to a value.
    Such a function raises ``ValueError`` with a sentence for text that it does not take; its value is frozen, can be
    compared and pickled, and ``str(value)`` is text that gives the same value again.

    ``help`` is one line without the default, which is added.  A ``repeatable`` option gives a tuple.  ``choices`` are
    all values that there are.  ``quantizes`` says that ``Target.profile`` reads the option: passes, the quantizer among
    them, get the others at their defaults, so that changing one of those does not quantize anew.
    """

    name: str
    type: Kind
    help: str
    default: object = None
    metavar: str = ""
    repeatable: bool = False
    choices: tuple[object, ...] = ()
    quantizes: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether it is given without a value."""
        return self.type is bool

    @property
    def unset(self) -> object:
        """Its value where nobody gives one."""
        if self.default is None:
            return () if self.repeatable else False if self.is_switch else None
        return self.default

    @property
    def placeholder(self) -> str:
        """What stands for its value in the help."""
        return self.metavar or _METAVARS.get(self.type, "VALUE")

    @property
    def fault(self) -> str:
        """Why no target can have this option, empty where one can."""
        if not _NAME.fullmatch(self.name):
            return "a name has lower-case words with dashes between them"
        if self.is_switch and (self.repeatable or self.choices or self.unset is not False):
            return "a bool is a switch that is off without it: no default, no choices, not repeatable"
        if self.repeatable and not isinstance(self.unset, tuple):
            return f"the default of a repeatable option is a tuple, not {self.unset!r}"
        return ""


@runtime_checkable
class OptionedTarget(Protocol):
    """A target that brings options of its own; their values are in ``BuildContext.target_options``."""

    @property
    def options(self) -> tuple[TargetOption, ...]: ...


def flag(target: str, name: str) -> str:
    """How a target's option is spelled on the command line."""
    return f"--{target}-{name}"


def declared(target: object) -> tuple[TargetOption, ...]:
    """The options of a target, none where it brings none."""
    return tuple(target.options) if isinstance(target, OptionedTarget) else ()


def chosen(target: object, options: ExportOptions) -> dict[str, Any]:
    """What was given for a target, by option in the order of its declaration, each as the value that it stands for.

    What is as without it is left out.  Raises ``UsageError`` for an option that the target does not have, and for what
    is not one of its values.
    """
    name = str(getattr(target, "name", ""))
    return _typed(name, declared(target), options.target_options.get(name, {}))


def values(target: object, options: ExportOptions) -> dict[str, Any]:
    """All options of a target by name: what was given, else the default."""
    return {each.name: each.unset for each in declared(target)} | chosen(target, options)


def for_passes(target: object, options: ExportOptions) -> ExportOptions:
    """``options`` with those of the target that passes get."""
    name = str(getattr(target, "name", ""))
    given = options.target_options.get(name, {})
    quantizing = {each.name for each in declared(target) if each.quantizes}
    kept = {key: value for key, value in given.items() if _plain(key) in quantizing}
    return options if len(kept) == len(given) else replace(options, target_options={name: kept})


def words(target: object, options: ExportOptions) -> list[str]:
    """The flags of a command line that give a target the same options."""
    name, found = str(getattr(target, "name", "")), list[str]()
    for key, value in chosen(target, options).items():
        if value is True:
            found.append(flag(name, key))
            continue
        for each in value if isinstance(value, tuple) else (value,):
            text = each.name if isinstance(each, Path) else str(each)
            found += [f"{flag(name, key)}={text}"] if text.startswith("-") else [flag(name, key), text]
    return found


def texts(target: object, options: ExportOptions) -> dict[str, object]:
    """All options of a target for reports: numbers and switches as they are, else text, files by their names."""
    return {key: text_of(value) for key, value in values(target, options).items()}


def text_of(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, tuple):
        return [text_of(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return value.name if isinstance(value, Path) else str(value)


def _typed(target: str, options: Sequence[TargetOption], given: Mapping[str, object]) -> dict[str, Any]:
    by_name = {each.name: each for each in options}
    for key in given:
        if _plain(key) not in by_name:
            raise UsageError(f"target {target} has no option {_plain(key)!r}{_others(_plain(key), tuple(by_name))}")
    plain = {_plain(key): value for key, value in given.items()}
    read = {name: _read(target, each, plain[name]) for name, each in by_name.items() if plain.get(name) is not None}
    return {name: value for name, value in read.items() if value != by_name[name].unset}


def _others(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f". Did you mean {close[0]!r}?"
    return f"; it has: {', '.join(known)}" if known else "; it has none"


def _read(target: str, option: TargetOption, value: object) -> object:
    """The value, or a tuple of them; ``UsageError`` that names the flag for anything else."""
    spelled = flag(target, option.name)
    if not option.repeatable:
        return _one(spelled, option, value)
    several = value if isinstance(value, list | tuple) else (value,)
    found = tuple(_one(spelled, option, each) for each in several)
    for at, each in enumerate(found):
        if each in found[:at]:
            raise UsageError(f"{spelled} {text_of(each)} is given twice")
    return found


def _one(spelled: str, option: TargetOption, value: object) -> object:
    try:
        read = _of_kind(option.type, value)
    except _READING as error:
        said = str(error) if isinstance(error, ValueError) and _is_raised(error) else _wanted(option)
        raise UsageError(f"{spelled} {value}: {said}") from error
    if option.choices and read not in option.choices:
        raise UsageError(f"{spelled} {value}: not one of {', '.join(map(str, option.choices))}")
    return read


_READING = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError)
"""What reading text that is not a value comes to, where a type does not say so by a ``ValueError`` of its own."""


def _is_raised(error: Exception) -> bool:
    """Whether a ``raise`` says it in words for users, and not a builtin such as ``int`` in words of Python."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _wanted(option: TargetOption) -> str:
    return f"not a value of this option, which is {option.placeholder} ({option.help.rstrip('.')})"


def _of_kind(kind: Kind, value: object) -> object:
    """``value``, which may be text, as what ``kind`` makes of it; ``ValueError`` says what was expected."""
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return value
    if isinstance(value, bool | list | tuple | Mapping) or value == "":
        raise ValueError(f"expected {_expected(kind)}")
    if kind is int or kind is float:
        return _number(kind, value)
    if kind is str and not isinstance(value, str):
        raise ValueError("expected text")
    if kind is Path:
        path = Path(str(value)).expanduser()
        if not path.exists():
            raise ValueError("there is no such file or folder")
        return path
    return kind(os.fspath(value) if isinstance(value, os.PathLike) else str(value))


def _number(kind: Kind, value: object) -> object:
    if not isinstance(value, str | int | float) or (kind is int and isinstance(value, float)):
        raise ValueError(f"expected {_expected(kind)}")
    try:
        number = kind(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"expected {_expected(kind)}") from error
    if not math.isfinite(number):
        raise ValueError("expected a finite number")
    return number


def _expected(kind: Kind) -> str:
    if kind is Path:
        return "a path"
    known: dict[Kind, str] = {int: "a whole number", float: "a number", str: "text"}
    return known.get(kind, "one value as text")


def _plain(name: str) -> str:
    """An option's name as it is declared: Python's keywords and recipes may have underscores."""
    return name.replace("_", "-")
