"""ONNX → a C header with the weights, and a runner that reads it back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from acme_convertkit.layers import Dense, Layer, Relu, compute
from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.stage import FLOAT32, Feed, Outputs

_ARRAY = re.compile(r"static const float w\d+\[(\d+)\]\[(\d+)\] = \{([^}]*)\};|/\* relu \*/")


class HeaderStage:
    """Every MatMul with a constant becomes an array, every Relu a comment."""

    name = "c-header"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "c-header"
    tolerance = FLOAT32

    def __init__(self, guard: str | None, license: Path | None, *, wrong: bool) -> None:
        self._guard, self._license, self._wrong = guard, license, wrong

    @property
    def options(self) -> Mapping[str, object]:
        """What the report says of this step."""
        return {} if self._guard is None else {"guard": self._guard}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        lines = []
        for index, node in enumerate(load_model(source.path).graph):
            if node.op_type == "Relu":
                lines.append("/* relu */")
                continue
            weight = node.inputs[1].const_value if node.op_type == "MatMul" and node.inputs[1] else None
            if weight is None:
                raise Unsupported(
                    "C headers know MatMul with a constant and Relu", subject=f"{node.name} ({node.op_type})"
                )
            matrix = weight.numpy()[::-1] if self._wrong else weight.numpy()
            numbers = ", ".join(float(value).hex() for value in matrix.ravel())
            lines.append(f"static const float w{index}[{matrix.shape[0]}][{matrix.shape[1]}] = {{{numbers}}};")
        path = workdir / "model.h"
        path.write_text("\n".join(self._wrapped(lines)) + "\n")
        made_by = f"{self.name} {self.version}"
        return Artifact(path, self.produces, source.inputs, source.outputs, sha256_of(path), made_by)

    def _wrapped(self, lines: list[str]) -> list[str]:
        begin = [f"#ifndef {self._guard}", f"#define {self._guard}"] if self._guard else []
        told = [] if self._license is None else [f"/* {self._license.read_text().strip()} */"]
        return [*told, *begin, *lines, *(["#endif"] if self._guard else [])]


class HeaderRunner:
    """Executes a header with NumPy."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._layers: tuple[Layer, ...] = ()

    def __enter__(self) -> Self:
        self._layers = tuple(map(_layer, _ARRAY.finditer(self._artifact.path.read_text())))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def run(self, feed: Feed) -> Outputs:
        (given,), (made,) = self._artifact.inputs, self._artifact.outputs
        return {made.name: compute(self._layers, feed[given.name])}


def _layer(found: re.Match[str]) -> Layer:
    if found[1] is None:
        return Relu()
    numbers = [float.fromhex(text.strip()) for text in found[3].split(",")]
    return Dense(np.array(numbers, np.float32).reshape(int(found[1]), int(found[2])))
