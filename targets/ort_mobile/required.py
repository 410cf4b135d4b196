"""The operators, and the types of them, that a reduced build of ONNX Runtime has to include for one model."""

from __future__ import annotations

import logging
from pathlib import Path

from onnxruntime.tools.ort_format_model import create_config_from_models

CONFIG = "required_operators_and_types.config"
"""The name that ONNX Runtime's own tools give it."""


def write_required(model: Path, path: Path) -> int:
    """Write what the ``.ort`` file ``model`` needs; how many kinds of operators.

    ONNX Runtime's tool names the model by its whole path, here it is the name alone.
    """
    logging.getLogger("ort_format_model.utils").setLevel(logging.WARNING)  # it tells of each file that it writes
    create_config_from_models([model], path, True)
    lines = path.read_text(encoding="utf-8").replace(str(model), model.name)
    path.write_text(lines, encoding="utf-8")
    return len(kinds(lines))


def kinds(text: str) -> frozenset[str]:
    """Names of the operators in a configuration, whatever their domain and version: ``DOMAIN;OPSET;OP{types},OP``."""
    found = set[str]()
    for line in text.splitlines():
        if line and not line.startswith("#"):
            depth, name = 0, ""
            for sign in f"{line.split(';', 2)[2]},":
                depth += {"{": 1, "}": -1}.get(sign, 0)
                if sign == "," and not depth:
                    found.add(name.partition("{")[0])
                    name = ""
                else:
                    name += sign
    return frozenset(found)
