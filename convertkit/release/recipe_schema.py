"""The JSON schema of recipes, made of the declared options and gates, by which editors complete them."""

from __future__ import annotations

from typing import Any

from convertkit.options.flags import Key, declared_keys
from convertkit.plugins import target_names
from convertkit.release.gates import GATES
from convertkit.release.recipe import OWN_KEYS, PRECISIONS

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_TEXTS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_LIMITS: dict[str, dict[str, Any]] = {
    "a number": {"type": "number", "minimum": 0},
    "a share from 0 to 1": {"type": "number", "minimum": 0, "maximum": 1},
    "a whole number": {"type": "integer", "minimum": 0},
    "a size such as 2MB": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string"}]},
    "a list of names": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "a table of devices such as { phone = 0.5 }": {
        "type": "object", "additionalProperties": {"type": "number", "minimum": 0}, "minProperties": 1,
    },
}  # fmt: skip


def recipe_schema() -> dict[str, Any]:
    """The schema, draft 2020-12; targets are those that are installed, others are taken, too."""
    options = {key.name: _option(key) for key in declared_keys() if key.name not in OWN_KEYS}
    target = {"type": "object", "additionalProperties": {"type": "object"}, "description": "options of single targets"}
    gates = {"$ref": "#/$defs/gates"}
    cell = _table({**options, "target": target, "gates": gates, "required": _flag("whether the release needs it"),
                   "skip": _flag("do not make it")})  # fmt: skip
    precision = {"enum": list(PRECISIONS)}
    cells = {"type": "object", "additionalProperties": cell, "description": "by pattern TARGET:PRECISION"}
    many = {
        **options,
        "target": target,
        "targets": {"anyOf": [_names(), {"type": "string"}]},
        "precisions": {"anyOf": [{"type": "array", "items": precision, "uniqueItems": True}, precision]},
        "gates": gates,
        "required": _flag("whether the release needs its cells"),
        "cells": cells,
    }
    model = {
        "source": {"type": "string", "description": "a path, or pkg.mod:callable"},
        "license": {"type": "string", "description": "an SPDX expression"},
        "license_file": {"type": "string"},
        **many,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "convertkit:recipe",
        "title": "A recipe of convertkit run",
        **_table(
            {
                "include": _TEXTS,
                "release": _table(_release()),
                "defaults": _table(many),
                "models": {"type": "object", "additionalProperties": {**_table(model), "required": ["source"]}},
            }
        ),
        "$defs": {"gates": _table({name: _gate(name) for name in GATES})},
    }


def _release() -> dict[str, Any]:
    texts = {"name": "of the release", "version": "of the release", "output": "folder of the release [release]",
             "baseline": "folder of an earlier release"}  # fmt: skip
    golden = {"type": "integer", "minimum": 0, "maximum": 100, "description": "samples of golden vectors"}
    return {**{name: {"type": "string", "description": text} for name, text in texts.items()}, "golden": golden}


def _names() -> dict[str, Any]:
    known = {"anyOf": [{"enum": list(target_names())}, {"type": "string"}]}
    return {"type": "array", "items": known, "uniqueItems": True}


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _flag(text: str) -> dict[str, Any]:
    return {"type": "boolean", "description": text}


def _gate(name: str) -> dict[str, Any]:
    limit = _LIMITS[GATES[name].kind]
    return {"anyOf": [limit, {"const": False}], "description": f"{GATES[name].summary} false takes it away."}


def _option(key: Key) -> dict[str, Any]:
    """What an option of an export takes; those of several kinds are left open."""
    if key.choices:
        return {"enum": list(key.choices)}
    names = [_TYPES[kind] for kind in key.types]
    if names:
        return {"type": names if len(names) > 1 else names[0]}
    if key.is_path:
        return {"type": "string"}
    return {} if key.name == "static" else _TEXTS
