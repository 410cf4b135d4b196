"""Golden vectors of a delivered package, given to the evaluator again as the XCTest gives them to a device."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError
from convertkit.result import read_json
from convertkit.stage import Replay
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.evaluator.states import fresh
from convertkit.targets.coreml.interface import images_in
from convertkit.targets.coreml.options import Image
from convertkit.targets.coreml.package.program import Program, read_package

_LEAST = 1e-6
"""Of the largest output: as in ``GoldenTests.swift``."""


def replay(package: Path) -> Replay:
    """What the evaluator answers to ``golden.json`` beside a package."""
    path = package.with_name("golden.json")
    told, program = read_json(path), read_package(package)
    try:
        return Replay(len(told["vectors"]), tuple(_wrong(told, program)))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise SourceError(f"{path} does not hold golden vectors: {error}") from error


def _wrong(told: Mapping[str, Any], program: Program) -> Iterator[str]:
    evaluator, images, state = (
        Evaluator(program.block),
        images_in(program.metadata),
        fresh(program.block, program.states),
    )
    for place, vector in enumerate(told["vectors"]):
        if vector.get("begins"):
            state = fresh(program.block, program.states)
        inputs = {name: _given(value, images.get(name)) for name, value in vector["inputs"].items()}
        found = evaluator.run(inputs, state=state)
        for name, wanted in vector["outputs"].items():
            if said := _apart(wanted, found[name], float(told["relative"])):
                yield f"vector {place + 1}: output {name} {said}"


def _given(value: Mapping[str, Any], image: Image | None) -> Array:
    """An array as the program takes it; of an image the channels in its order, before rows and columns."""
    if image is None:
        return _array(value)
    pixels = _array({**value, "type": "uint8"})
    ordered = pixels[..., ::-1] if image.colour == "bgr" else pixels
    return np.moveaxis(ordered, -1, 0)[None].astype(np.float32)


def _array(value: Mapping[str, Any]) -> Array:
    kind = np.dtype(value["type"]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(value["data"], validate=True), kind).reshape(value["shape"])


def _apart(value: Mapping[str, Any], found: Array, relative: float) -> str:
    """How an output differs by more than the XCTest allows; empty where it does not."""
    if value["type"] == "text":
        return "" if str(found) == value["text"] else f"is {str(found)!r}, golden is {value['text']!r}"
    wanted = _array(value).astype(np.float64)
    if wanted.shape != found.shape:
        return f"has the shape {list(found.shape)}, golden is {list(wanted.shape)}"
    finite = np.isfinite(wanted)
    away = float(np.abs(found[finite].astype(np.float64) - wanted[finite]).max(initial=0.0))
    allowed = relative * max(float(np.abs(wanted[finite]).max(initial=0.0)), _LEAST)
    return "" if away <= allowed else f"differs by {away:.3g}, allowed {allowed:.3g}"
