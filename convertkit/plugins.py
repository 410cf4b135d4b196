"""Converters, passes, targets, runners and engines, found through entry points: ours exactly as anyone's."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, cast

from convertkit import CONVERTKIT_PLUGIN_API, __version__
from convertkit.artifact import Artifact
from convertkit.errors import ConvertKitError, SourceError, UsageError, missing_framework
from convertkit.lookalikes import archive_of, deliveries_of, not_a_model
from convertkit.other_formats import of_another_format
from convertkit.recipe import ExportOptions
from convertkit.references import closest, found_at, not_found, python_file
from convertkit.stage import (
    ChoosingTarget,
    Converter,
    PackagingTarget,
    PassPlugin,
    Runner,
    RunnerFactory,
    SelectiveTarget,
    Target,
)

CONVERTERS, PASSES, TARGETS, RUNNERS, ENGINES = (
    "convertkit.converters",
    "convertkit.passes",
    "convertkit.targets",
    "convertkit.runners",
    "convertkit.engines",
)


class BrokenPlugin(ConvertKitError):
    """An installed plugin that cannot be imported, or that is written for another version of the plugin API."""


@cache
def _installed() -> EntryPoints:
    """All entry points: finding them reads a file of every installed package, so it is done once for all groups."""
    return cast(EntryPoints, entry_points())  # Python 3.11 calls them SelectableGroups


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(_installed().select(group=group), key=lambda point: point.name)}


def points(group: str) -> tuple[EntryPoint, ...]:
    """What is registered in a group, not imported."""
    return tuple(_points(group).values())


def load(point: EntryPoint) -> Any:
    """The object behind an entry point; the only place that imports plugins."""
    try:
        _check_api(point)
        return point.load()
    except ModuleNotFoundError as error:
        missing = missing_framework(error.name)
        if missing is not None:
            raise missing from error
        raise BrokenPlugin(f"plugin {point.name} ({point.value}) cannot be imported: {error}") from error
    except (ImportError, AttributeError) as error:
        raise BrokenPlugin(f"plugin {point.name} ({point.value}) cannot be imported: {error}") from error


def _check_api(point: EntryPoint) -> None:
    """Refuse a plugin of another major version, or of a newer minor one, before what it registers is imported.

    Its top-level package declares the version in ``CONVERTKIT_PLUGIN_API``, as ours does; without that it is 1.0, which
    is older than the declaration.  Raises ``BrokenPlugin``.
    """
    package = import_module(point.module.partition(".")[0])
    written_for = getattr(package, "CONVERTKIT_PLUGIN_API", "1.0")
    if not isinstance(written_for, str) or not re.fullmatch(r"\d+\.\d+", written_for):
        raise BrokenPlugin(
            f"plugin {point.name}: CONVERTKIT_PLUGIN_API of {package.__name__} is {written_for!r}, not MAJOR.MINOR"
        )
    wanted, offered = _numbers(written_for), _numbers(CONVERTKIT_PLUGIN_API)
    if wanted[0] != offered[0] or wanted > offered:
        other = "a newer convertkit" if wanted > offered else "a newer version of the plugin"
        raise BrokenPlugin(
            f"plugin {point.name} ({point.value}) is written for plugin API {written_for}; convertkit {__version__} "
            f"offers {CONVERTKIT_PLUGIN_API}: install {other}"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def converter(name: str) -> Converter:
    """The installed converter of that name."""
    return cast(Converter, load(_points(CONVERTERS)[name]))


def converters() -> tuple[Converter, ...]:
    """All installed converters, in the order of their names."""
    return tuple(cast(Converter, load(point)) for point in _points(CONVERTERS).values())


def passes() -> tuple[PassPlugin, ...]:
    """All installed passes in the order in which they run."""
    found = [cast(PassPlugin, load(point)) for point in _points(PASSES).values()]
    return tuple(sorted(found, key=lambda each: (each.order, each.name)))


def target_names() -> tuple[str, ...]:
    """Names of all installed targets, without importing them."""
    return tuple(_points(TARGETS))


_OTHER_NAMES = {
    "litert": "tflite",
    "lite": "tflite",
    "tf-lite": "tflite",
    "tensorflow-lite": "tflite",
    "ort": "onnxruntime",
    "onnx": "onnxruntime",
    "onnx-runtime": "onnxruntime",
    "open-vino": "openvino",
    "vela": "ethos-u",
    "qualcomm": "qnn",
    "htp": "qnn",
    "pte": "executorch",
    "pytorch-mobile": "executorch",
    "xnnpack": "executorch",
    "ethosu": "ethos-u",
    "trt": "tensorrt",
    "tensor-rt": "tensorrt",
}
"""What targets are called elsewhere, and here."""


def usual_name(name: str) -> str:
    """The installed target that is meant by ``name``: ``TFLite``, ``litert``; as it is where none is."""
    known = target_names()
    if name in known:
        return name
    plain = name.strip().lower().replace("_", "-")
    meant = _OTHER_NAMES.get(plain, plain)
    return meant if meant in known else name


def target(name: str) -> Target:
    """The target called ``name``; ``UsageError`` with the closest name where there is none."""
    check_target(name)
    return cast(Target, load(_points(TARGETS)[name]))


def takes(target: Target, source: str) -> bool:
    """Whether a target is for such a source; most take all."""
    return not isinstance(target, SelectiveTarget) or target.takes(source)


def check_target(name: str) -> None:
    """Raise ``UsageError`` with the closest name where no installed target is called ``name``; imports none."""
    if name not in (known := target_names()):
        raise UsageError(f"unknown target {name!r}{closest(name, known)}; there are: {', '.join(known)}")


def package(name: str, packaged: str) -> str:
    """The target that packages for ``name`` what the target ``packaged`` delivers: ``name``, or ``name-packaged``.

    Raises ``UsageError`` where there is none, with what can be packaged so.
    """
    known = [each for each in target_names() if each == name or each.startswith(f"{name}-")]
    bases = {each: found.packages for each in known if isinstance(found := target(each), PackagingTarget)}
    for each, base in bases.items():
        if base == packaged:
            return each
    if not bases:
        names = [each for each in target_names() if isinstance(target(each), PackagingTarget)]
        raise UsageError(f"--package {name}: no such package{closest(name, names)}; there are: {', '.join(names)}")
    wanted = " or ".join(f"--target {base}" for base in bases.values())
    raise UsageError(f"--package {name} does not take what --target {packaged} delivers; it takes {wanted}")


def parts_of(whole: Target, options: ExportOptions) -> tuple[Target, ...]:
    """The targets whose steps follow each other: the one that ``whole`` packages, where it does, and itself."""
    if not isinstance(whole, PackagingTarget):
        return (whole,)
    inner = whole.packaged(options) if isinstance(whole, ChoosingTarget) else whole.packages
    return (*parts_of(target(inner), options), whole)


def runner(artifact: Artifact) -> Runner:
    """A runner for the artifact's format."""
    points = _points(RUNNERS)
    if artifact.format not in points:
        raise BrokenPlugin(f"no runner is installed for the format {artifact.format!r} of {artifact.path.name}")
    return cast(RunnerFactory, load(points[artifact.format]))(artifact)


def runner_names() -> tuple[str, ...]:
    """The formats that a runner is installed for, without importing it."""
    return tuple(_points(RUNNERS))


def engine_names() -> tuple[str, ...]:
    """Names of all engines that can be installed, without importing them."""
    return tuple(_points(ENGINES))


def engine(name: str) -> Any:
    """The ``Engine`` called ``name``; ``UsageError`` with the closest name where there is none."""
    known = engine_names()
    if name not in known:
        there = f"there are: {', '.join(known)}" if known else "there are none"
        raise UsageError(f"unknown engine {name!r}{closest(name, known)}; {there}")
    return load(_points(ENGINES)[name])


def converter_for(source: str) -> Converter:
    """The converter that recognises ``source`` by its content; ``SourceError`` where none does."""
    path = found_at(source, SourceError)
    if path is not None and (other := not_a_model(path)) is not None:
        raise SourceError(other)
    for point in _points(CONVERTERS).values():  # loaded one by one: most files are recognised by an early one
        each = cast(Converter, load(point))
        if each.sniff(source) is not None:
            return each
    if path is None:
        raise SourceError(not_found(source))
    if path.is_file() and path.stat().st_size == 0:
        raise SourceError(f"{source} is empty")
    if path.suffix == ".py":
        raise SourceError(python_file(path))
    if (other := archive_of(path) or deliveries_of(path) or of_another_format(path)) is not None:
        raise SourceError(other)
    kind = "folder" if path.is_dir() else "file"
    known = "; ".join(each.summary for each in converters())
    raise SourceError(f"{source}: this {kind} is not a model that convertkit recognises; it reads: {known}")
