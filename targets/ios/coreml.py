"""A package of Core ML as a resource of a Swift package: its features, and how far a device may be from golden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convertkit.artifact import Artifact
from convertkit.errors import UsageError
from convertkit.recipe import ExportOptions
from convertkit.result import read_json
from convertkit.target_options import flag, values
from convertkit.targets.coreml import target as coreml
from convertkit.targets.coreml.package.program import read_package

_SYSTEMS: Mapping[int, tuple[str, str]] = {7: ("16.0", "13.0"), 8: ("17.0", "14.0"), 9: ("18.0", "15.0")}
"""The oldest iOS and macOS by the version of a package.  Source: coremltools, ``coremltools/__init__.py``."""
_INSTEAD = {
    "image": "--ios-image takes pictures",
    "labels": "--label-file names the classes",
    "shapes": "the arrays of a typed API have one size",
    "state": "the typed API hands state from call to call by itself",
}


def check_options(options: ExportOptions) -> None:
    """``UsageError`` for what a Core ML package may have and the typed API around it does otherwise, or not."""
    chosen = values(coreml, options)
    for name, instead in _INSTEAD.items():
        if chosen[name]:
            raise UsageError(f"{flag('coreml', name)} does not go with --ios-runtime coreml: {instead}")
    if options.compress:
        raise UsageError("--compress does not go with --ios-runtime coreml: Xcode compiles the model when it builds")


@dataclass(frozen=True, slots=True)
class Features:
    """What Core ML calls the model's inputs and outputs, and their sizes there, by the source's names.

    ``ios`` and ``macos`` are the oldest systems that load the package.
    """

    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    ios: str
    macos: str


def features_of(source: Artifact) -> Features:
    """Of the package that the ``coreml`` target made, in the order of which its artifact tells them."""
    program = read_package(source.path)
    told = {each.name: each.shape for each in (*program.inputs, *program.outputs)}
    ins = zip(source.inputs, (name for name, _ in program.block.inputs), strict=True)
    outs = zip(source.outputs, program.block.outputs, strict=True)
    names = {spec.name: name for spec, name in (*ins, *outs)}
    ios, macos = _SYSTEMS[program.version]
    return Features(names, {each: told[name] for each, name in names.items()}, ios, macos)


def relative_of(source: Artifact) -> float:
    """The share of the greatest output that the ``coreml`` target's own golden test allows a device."""
    return float(read_json(source.path.with_name("golden.json"))["relative"])
