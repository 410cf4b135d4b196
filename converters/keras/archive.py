"""Read a Keras file's configuration without building anything, and find the code it wants to run."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.converters.keras import HDF5
from convertkit.errors import SourceError, Unsupported, Untrusted

Config = dict[str, Any]
_MAX_CONFIG_BYTES = 1 << 28
_MAX_RATIO = 1000
_RANDOM = frozenset(
    [
        "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform", "Orthogonal",
        "OrthogonalInitializer", "RandomNormal", "RandomUniform", "TruncatedNormal", "VarianceScaling",
    ]
)  # fmt: skip
_TABLES = frozenset(["HashedCrossing", "Hashing", "IntegerLookup", "StringLookup", "TextVectorization"])
_OURS = ("keras", "builtins", "")


@dataclass(frozen=True, slots=True)
class Described:
    """What a file says about itself: its model's configuration and the Keras version that wrote it.

    ``assets`` are files beside the weights, such as vocabularies.
    """

    kind: str
    config: Config
    version: str
    assets: bool = False


def describe(path: Path) -> Described:
    """The configuration in ``path``; ``SourceError`` where the file is broken or holds weights alone."""
    with path.open("rb") as stream:
        return _from_hdf5(path) if stream.read(8) == HDF5 else _from_zip(path)


def _from_zip(path: Path) -> Described:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.file_size > _MAX_RATIO * max(member.compress_size, 1):
                    raise SourceError(f"{path}: {member.filename} unpacks to {member.file_size} bytes; refused")
            config = _parsed(path, archive.read("config.json"))
            names = archive.namelist()
            metadata = _parsed(path, archive.read("metadata.json")) if "metadata.json" in names else {}
    except (zipfile.BadZipFile, KeyError, OSError, EOFError, NotImplementedError, zlib.error) as error:
        raise SourceError(f"{path} is not a readable .keras archive: {error}") from error
    assets = any(name.startswith("assets/") for name in names)
    return Described("keras", config, str(metadata.get("keras_version", "3")), assets)


def _from_hdf5(path: Path) -> Described:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            _refuse_links(path, file)
            text = file.attrs.get("model_config")
            version = _text(file.attrs.get("keras_version", "2"))
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise SourceError(f"{path} is not a readable HDF5 file: {_sentence(error)}") from error
    if text is None:
        raise SourceError(
            f"{path} holds weights and no model\n"
            "  try   --model pkg.mod:factory, a function that returns the Keras model these weights belong to"
        )
    return Described("keras-h5", _parsed(path, _text(text).encode()), version)


def _refuse_links(path: Path, group: Any, depth: int = 0) -> None:
    """Links out of the file would read other files."""
    import h5py

    if depth > 32:
        raise SourceError(f"{path}: groups nested deeper than 32")
    for name in group:
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise SourceError(f"{path}: {name} links to another file; refused")
        if isinstance(link, h5py.HardLink) and isinstance(item := group.get(name), h5py.Group):
            _refuse_links(path, item, depth + 1)
        elif isinstance(link, h5py.HardLink) and (item.is_virtual or item.external):
            raise SourceError(f"{path}: {name} reads its data from another file; refused")


def _parsed(path: Path, data: bytes) -> Config:
    if len(data) > _MAX_CONFIG_BYTES:
        raise SourceError(f"{path}: a configuration of {len(data)} bytes; refused")
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: the model's configuration is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise SourceError(f"{path}: the model's configuration is not an object")
    return config


def without_random_weights(config: Any) -> Any:
    """``config`` with zeros for random initialisers: the weights are loaded, and drawing random ones takes seconds."""
    if isinstance(config, dict):
        if config.get("module") == "keras.initializers" and config.get("class_name") in _RANDOM:
            return {"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": None}
        return {key: without_random_weights(value) for key, value in config.items()}
    return [without_random_weights(each) for each in config] if isinstance(config, list) else config


def dicts(value: Any) -> Iterator[Config]:
    """Every object in a JSON value, outer ones first."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending += each.values()
        elif isinstance(each, list):
            pending += each


def refuse_code(path: Path, config: Config, trusted: bool) -> bool:
    """Raise ``Untrusted`` where ``config`` holds Python code and that is not trusted; whether it holds any."""
    for each in dicts(config):
        if each.get("class_name") in ("Lambda", "__lambda__"):
            if not trusted:
                inner = each.get("config")
                name = inner.get("name", "") if isinstance(inner, Mapping) else ""
                raise Untrusted(
                    f"{path}: the layer {name or 'of class Lambda'} is Python code stored in the file\n"
                    "  try   --trust lambda, if you trust whoever made the file to run code on this machine"
                )
            return True
    return False


def refuse_tables(config: Config) -> None:
    """Raise ``Unsupported`` for a layer that looks strings or integers up, which only TensorFlow computes."""
    for each in dicts(config):
        if each.get("class_name") in _TABLES and str(each.get("module") or "").partition(".")[0] in _OURS:
            inner = each.get("config")
            name = inner.get("name", "") if isinstance(inner, Mapping) else ""
            raise Unsupported(
                "a lookup table or hash; ONNX holds none",
                subject=f"{name} ({each['class_name']})",
                ways_out=("doing lookups before the model, which then takes numbers",),
            )


def refuse_unknown(path: Path, config: Config, known: Callable[[str], bool]) -> None:
    """Raise ``Untrusted`` for a class that is neither Keras's own nor given by the user."""
    for each in dicts(config):
        module, name = each.get("module"), each.get("class_name")
        if not isinstance(name, str) or "config" not in each or name.startswith("__"):
            continue
        top = module.partition(".")[0] if isinstance(module, str) else ""
        registered = each.get("registered_name")
        if top in _OURS and not (isinstance(registered, str) and ">" in registered):
            continue
        if not (known(name) or known(str(registered))):
            raise Untrusted(
                f"{path}: {name} ({module or registered}) is code of its own that the file does not hold\n"
                f"  try   --model {module or 'pkg.mod'}:{name}, where that module defines it"
            )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
