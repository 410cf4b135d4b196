"""The command that an export is, whether it came from a terminal, a recipe or Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from convertkit import plugins
from convertkit.recipe import ExportOptions, ImageOptions, InputSpec, Normalization, WavOptions
from convertkit.target_options import words as target_words

_ELSEWHERE = frozenset(
    {"source", "targets", "output", "precision", "verbose", "force", "keep_failed", "jobs", "cache", "scheduler"}
    | {"target_options", "measured"}
)
_PATHS = frozenset({"calib", "eval", "label_file"})
_RENAMED = {"inputs": "input", "timeout_s": "timeout", "passes": "pass"}


def command(options: ExportOptions, target: str) -> str:
    """The command line for one target; files by the last part of their paths: those of one machine do not travel."""
    words = ["convertkit", "export", _last(options.source), "--target", target]
    words += [f"--{options.precision}"] if options.precision != "float32" else []
    plain = ExportOptions("")
    for field in fields(options):
        value = getattr(options, field.name)
        usual = getattr(plain, field.name)
        # Data may be arrays, which compare one by one.
        chosen = value is not usual if field.name in _PATHS else value != usual
        if field.name not in _ELSEWHERE and chosen:
            words += _words(_RENAMED.get(field.name, field.name), value)
    for part in plugins.parts_of(plugins.target(target), options):
        words += target_words(part, options)
    return shlex.join(words)


def _words(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if name in _PATHS:
        return [flag, _last(value) if isinstance(value, str | Path) else "DATA"]
    values = sorted(value) if isinstance(value, frozenset) else value if isinstance(value, tuple) else (value,)
    return [word for each in values for word in (flag, _text(each))]


def _text(value: object) -> str:
    if isinstance(value, InputSpec):
        shape = ",".join(map(str, value.shape or ()))
        bounds = "" if value.value_range is None else "[{:g},{:g})".format(*value.value_range)
        return f"{value.name}:{shape}" + (f":{value.dtype or ''}{bounds}" if value.dtype or bounds else "")
    if isinstance(value, Normalization):
        return f"{value.input}:{_numbers(value.mean)}/{_numbers(value.std)}"
    if isinstance(value, ImageOptions):
        return ",".join(_image_words(value))
    if isinstance(value, WavOptions):
        return ",".join(_wav_words(value))
    return "=".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _image_words(images: ImageOptions) -> Iterator[str]:
    plain = ImageOptions()
    if images.fit == "crop":
        yield f"crop:{images.share:g}"
    elif images.fit == "pad":
        yield f"pad:{images.fill}"
    for word, usual in ((images.filter, plain.filter), (images.order, plain.order), (images.layout, plain.layout)):
        if word != usual:
            yield word


def _wav_words(wav: WavOptions) -> Iterator[str]:
    if wav.rate is not None:
        yield f"rate:{wav.rate}"
    if wav.mono:
        yield "mono"
    for name, length in (("window", wav.window), ("hop", wav.hop)):
        if length is not None:
            yield f"{name}:{length:g}{'s' if name in wav.in_seconds else ''}"


def _numbers(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:.10g}" for value in values)


def _last(path: object) -> str:
    """A file's or folder's own name; ``pkg.mod:func`` as it is."""
    text = str(path)
    return text if ":" in text and not Path(text).exists() else Path(text).name
