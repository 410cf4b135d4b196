"""From flags, keywords or recipe keys to :class:`~convertkit.recipe.ExportOptions`: one table for all three."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from convertkit.errors import UsageError
from convertkit.options import consistency, of_targets
from convertkit.options.inputs import parse_input, parse_normalization
from convertkit.options.pictures import parse_images
from convertkit.options.sounds import parse_wav
from convertkit.processing.words import read_postprocess, read_preprocess
from convertkit.recipe import (
    RECOVERY_MINUTES,
    CalibMethod,
    ExportOptions,
    InputSpec,
    Layout,
    Normalization,
    Precision,
)

PRECISION_FLAGS: tuple[Precision, ...] = ("int8", "int16x8", "fp16", "w8", "w4", "fp8", "bf16")


_RENAMED = {"timeout": "timeout_s", "input": "inputs"}


_KEYS = (
    "source",
    "target",
    "package",
    "output",
    *PRECISION_FLAGS,
    "full_integer",
    "accept_loss",
    "size_first",
    "io_dtype",
    "device",
    "calib",
    "calib_samples",
    "images",
    "wav",
    "calib_method",
    "eval",
    "metric",
    "max_drop",
    "strict",
    "allow_unverified",
    "prune",
    "prune_channels",
    "target_latency",
    "low_rank",
    "budget",
    "recover",
    "input",
    "model",
    "input_layout",
    "static",
    "signature",
    "description",
    "label_file",
    "compress",
    "normalization",
    "preprocess",
    "postprocess",
    "opset",
    "trust",
    "timeout",
    "keep_failed",
    "force",
    "passes",
    "verbose",
    "seed",
    "jobs",
    "cache",
    "no_cache",
    "scheduler",
    "target_options",
)


_PATHS = ("source", "calib", "eval", "output", "label_file", "cache")


_CHOICES: dict[str, tuple[str, ...]] = {
    "io_dtype": ("float32", "int8", "uint8", "int16"),
    "calib_method": get_args(CalibMethod),
    "input_layout": get_args(Layout),
}


_FLAG, _TEXT, _WHOLE, _NUMBER = "true or false", "text", "a whole number", "a number"


_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(
        (
            *PRECISION_FLAGS,
            "full_integer",
            "accept_loss",
            "size_first",
            "strict",
            "allow_unverified",
            "compress",
            "keep_failed",
            "force",
            "verbose",
            "no_cache",
        ),
        (_FLAG, (bool,)),
    ),
    **dict.fromkeys(
        (
            "source",
            "package",
            "output",
            "metric",
            "model",
            "signature",
            "description",
            "label_file",
            "preprocess",
            "postprocess",
            "cache",
            "scheduler",
            "budget",
        ),
        (_TEXT, (str,)),
    ),
    **dict.fromkeys(("calib_samples", "opset", "seed", "jobs"), (_WHOLE, (int,))),
    **dict.fromkeys(("max_drop", "target_latency", "timeout"), (_NUMBER, (int, float))),
    "recover": ("minutes, or true", (int, float, bool)),
    "prune": ("a share, auto or N:M", (int, float, str)),
    **dict.fromkeys(("prune_channels", "low_rank"), ("a share or auto", (int, float, str))),
}


def options_from(values: Mapping[str, Any]) -> ExportOptions:
    """Options from flag names with underscores; absent, None and False values mean the default.

    Raises ``UsageError`` where values contradict each other or cannot be read.
    """
    given = {name: value for name, value in values.items() if value is not None and value is not False}
    if unknown := next((name for name in given if name not in _KEYS), None):
        raise UsageError(f"unknown option {unknown!r}{closest_key(unknown)}")
    precision = _precision(given)
    fields = {_RENAMED.get(name, name): field(name, value) for name, value in given.items()}
    if fields.pop("no_cache", False):
        fields["cache"] = ""
    fields["targets"] = _packaged(fields.pop("package", None), fields.pop("target", ()))
    for name in PRECISION_FLAGS:
        fields.pop(name, None)
    options = ExportOptions(**{**fields, "precision": precision})
    consistency.check(options)
    return options


def field(name: str, value: Any) -> Any:
    """One flag's value as :class:`ExportOptions` holds it; ``UsageError`` where that flag does not take it."""
    _check_kind(name, value)
    if name in _CHOICES and value not in _CHOICES[name]:
        raise UsageError(f"{flag(name)} {value}: not one of {', '.join(_CHOICES[name])}")
    if name in _PATHS:
        return _at_home(value)
    return _READ[name](value) if name in _READ else value


def merged(recipe: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe says and what the command line says instead: another precision replaces the recipe's."""
    chooses = any(name in given for name in PRECISION_FLAGS)
    kept = {name: value for name, value in recipe.items() if not (chooses and name in PRECISION_FLAGS)}
    return {**kept, **given, **of_targets.merged(recipe, given)}


def flag(name: str) -> str:
    """The command-line spelling of an option."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of recipes: the types that its value may have (any where there are none), its choices, if it is a path."""

    name: str
    types: tuple[type, ...]
    choices: tuple[str, ...]
    is_path: bool


def declared_keys() -> tuple[Key, ...]:
    """Every key that an export's recipe has."""
    return tuple(Key(name, _KINDS.get(name, ("", ()))[1], _CHOICES.get(name, ()), name in _PATHS) for name in _KEYS)


def _precision(given: Mapping[str, Any]) -> Precision:
    chosen = [name for name in PRECISION_FLAGS if given.get(name)]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(map(flag, chosen))} exclude each other")
    return chosen[0] if chosen else "float32"


def _check_kind(name: str, value: Any) -> None:
    """Raise ``UsageError`` where a recipe or a caller gives a value of another kind than the flag takes."""
    if isinstance(value, str) and not value:
        raise UsageError(f"{flag(name)} is empty; give it a value, or leave it out")
    kind, types = _KINDS.get(name, ("", ()))
    if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
        raise UsageError(f"{name}: expected {kind}, found {value!r}")


def _static(text: tuple[str, Any]) -> tuple[str, int]:
    name, size = text
    if not name or not str(size).isdecimal() or int(size) < 1:
        raise UsageError(f"--static {name}={size}: expected NAME=SIZE with a size of at least 1")
    return name, int(size)


def _pairs(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return [_pair(text) for text in _strings("static", value)]


def _pair(text: str) -> tuple[str, str]:
    name, _, size = text.partition("=")
    return name, size


def _targets(value: Any) -> tuple[str, ...]:
    """Names of targets, also with commas between them and as they are called elsewhere."""
    from convertkit.plugins import usual_name

    return tuple(usual_name(name) for name in _commas("target", value))


def _packaged(package: str | None, targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets that are meant: those that package what ``targets`` deliver, where a package is asked for."""
    from convertkit import plugins

    if package is None:
        return targets or ("onnxruntime",)
    return tuple(plugins.package(package, each) for each in targets) or (plugins.target(package).name,)


def _commas(name: str, value: Any) -> tuple[str, ...]:
    """Names, one or several in a text."""
    return tuple(each for text in _strings(name, value) for each in str(text).split(",") if each)


def _at_home(value: Any) -> Any:
    """A path whose ``~`` no shell has replaced, as in ``--calib=~/data`` or in a recipe."""
    if isinstance(value, str) and value.startswith("~") and not Path(value).exists():
        return os.path.expanduser(value)
    return value


def _strings(name: str, value: Any) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for each in values:
        if not isinstance(each, str | InputSpec | Normalization):
            raise UsageError(f"{name}: expected text or a list of texts, found {each!r}")
    return values


def closest_key(name: str) -> str:
    """The end of a sentence on a key that no recipe has, where one is like it."""
    close = difflib.get_close_matches(name, _KEYS, 1)
    return f'. Did you mean "{close[0]}"?' if close else ""


_READ: Mapping[str, Callable[[Any], Any]] = {
    "target": _targets,
    "input": lambda value: tuple(parse_input(text) for text in _strings("input", value)),
    "normalization": lambda value: tuple(parse_normalization(text) for text in _strings("normalization", value)),
    "static": lambda value: tuple(_static(text) for text in _pairs(value)),
    "trust": lambda value: frozenset(_strings("trust", value)),
    "passes": lambda value: _strings("passes", value),
    "device": lambda value: _commas("device", value),
    "images": parse_images,
    "wav": parse_wav,
    "preprocess": read_preprocess,
    "postprocess": read_postprocess,
    "prune": str,
    "prune_channels": str,
    "low_rank": str,
    "recover": lambda value: RECOVERY_MINUTES if value is True else value,
    "target_options": of_targets.given,
}
"""What reads the value of a flag, where it is not taken as it is."""
