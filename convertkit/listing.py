"""What ``convertkit targets`` lists: every target and source, whether it can be used here, and what would add it."""

from __future__ import annotations

import importlib.metadata
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convertkit import plugins
from convertkit.colour import painted
from convertkit.errors import engine_command, install_command
from convertkit.stage import Converter, PassPlugin, Target, WithEngine, WithExtra
from convertkit.target_options import TargetOption, declared, flag, text_of

PACKAGES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "torch": (("torch",), ("safetensors",)),
    "tensorflow": (("tensorflow-cpu", "tensorflow"), ("tf2onnx",), ("h5py",)),
    "keras": (("keras",), ("h5py",), ("jax",)),
    "jax": (("jax",), ("jaxlib",)),
    "tflite": (("ai-edge-litert",), ("flatbuffers",)),
    "tflite-micro": (("tflite-micro",), ("ai-edge-litert",), ("flatbuffers",)),
    "ethos-u": (("ethos-u-vela",), ("ai-edge-litert",), ("flatbuffers",)),
    "qnn": (("onnxruntime-qnn",),),
    "litert-npu": (("onnxruntime-qnn",), ("ai-edge-litert",), ("flatbuffers",)),
    "executorch": (("executorch",), ("torch",)),
    "coreml": (("coremltools",),),
    "tf-serving": (("tensorflow-cpu", "tensorflow"), ("ai-edge-litert",), ("flatbuffers",)),
    "stablehlo": (("tensorflow-cpu", "tensorflow"), ("ai-edge-litert",), ("flatbuffers",), ("jax",), ("jaxlib",)),
    "openvino": (("openvino",),),
    "genai": (("onnxruntime-genai",),),
    "mnn": (("mnn",),),
    "litert-lm": (("litert-lm-api",), ("litert-lm-builder",), ("ai-edge-litert",), ("flatbuffers",)),
    "ncnn": (("ncnn",),),
    "core": (("onnxruntime",),),
}
"""What an extra brings, by the names that pip knows; of alternatives one is enough.  The core is there without one."""

_COLUMNS = 120
"""Of a line, where flags go on in the next one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A plugin: ``packages`` are what it needs beside the core, with the version that is there or None."""

    name: str
    facts: Mapping[str, Any]
    packages: Mapping[str, str | None]
    install: str | None

    @property
    def installed(self) -> bool:
        """Whether all that it needs is there."""
        return None not in self.packages.values()

    def as_json(self) -> dict[str, Any]:
        """The entry as ``--json`` prints it."""
        return {
            "name": self.name,
            **self.facts,
            "installed": self.installed,
            "packages": self.packages,
            "install": self.install,
        }

    @property
    def state(self) -> str:
        """What is there, or what is missing and the command that adds it."""
        if not self.installed:
            missing = ", ".join(name for name, version in self.packages.items() if version is None)
            return f"missing {missing}: {self.install}"
        return ", ".join(f"{name} {version}" for name, version in self.packages.items()) or "installed"


def everything() -> dict[str, list[Entry]]:
    """All installed plugins by what they are: targets, converters, passes."""
    targets = [_target(plugins.target(name)) for name in plugins.target_names()]
    sources = [_entry(each, {"summary": each.summary}) for each in plugins.converters()]
    passes = [_entry(each, {"order": each.order}) for each in plugins.passes()]
    return {"targets": targets, "converters": sources, "passes": passes}


def print_everything() -> None:
    """The same for people, on stdout: what is there first, then what it is."""
    found = everything()
    for title, entries in (("targets", found["targets"]), ("sources", found["converters"])):
        print(title)
        width = max(len(each.name) for each in entries)
        for each in entries:
            state = each.state if each.installed else painted(each.state, "warning", sys.stdout)
            print(f"  {each.name:<{width}}  {state}")
            about = [str(each.facts["summary"]), " ".join(map(str, each.facts.get("precisions", ())))]
            flags = " ".join(option["flag"] for option in each.facts.get("options", ()))
            about += textwrap.wrap(flags, _COLUMNS - width - 4, break_on_hyphens=False)
            print("\n".join(f"  {'':<{width}}  {line}" for line in about if line))


def _target(target: Target) -> Entry:
    facts = {"summary": target.summary, "precisions": list(target.precisions)}
    return _entry(target, {**facts, "options": [_option(target.name, each) for each in declared(target)]})


def _option(target: str, option: TargetOption) -> dict[str, Any]:
    return {
        "flag": flag(target, option.name),
        "value": None if option.is_switch else option.placeholder,
        "help": option.help,
        "default": text_of(option.unset),
        "choices": [str(each) for each in option.choices],
        "repeatable": option.repeatable,
    }


def _entry(plugin: Target | Converter | PassPlugin, facts: Mapping[str, Any]) -> Entry:
    if isinstance(plugin, WithEngine):
        return _with_engine(plugin.name, facts, plugin.engine)
    extra = plugin.extra if isinstance(plugin, WithExtra) else ""
    packages = dict(_version(names) for names in PACKAGES.get(extra, ()))
    missing = None in packages.values()
    return Entry(plugin.name, facts, packages, install_command(extra) if missing else None)


def _with_engine(name: str, facts: Mapping[str, Any], engine: str) -> Entry:
    from convertkit.engines.environments import installed

    known = plugins.engine(engine)
    package, version = next(iter(known.packages.items()))  # the engine itself; the rest is what that needs
    packages = {package: None if installed(known) is None else version}
    return Entry(name, facts, packages, engine_command(engine) if None in packages.values() else None)


def _version(names: tuple[str, ...]) -> tuple[str, str | None]:
    """The first of these packages that is installed, with its version; else the first one's name."""
    for name in names:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return names[0], None
