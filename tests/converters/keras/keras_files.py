"""Configurations and files as Keras 2 wrote them, and the command line on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def layer(name: str, kind: str, inputs: list, **config: object) -> dict:
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": inputs}


def functional(*layers: dict, last: str) -> dict:
    config = {"name": "m", "layers": list(layers), "input_layers": [["x", 0, 0]], "output_layers": [[last, 0, 0]]}
    return {"class_name": "Functional", "config": config}


def x(*shape: int) -> dict:
    return layer("x", "InputLayer", [], batch_input_shape=[None, *shape], dtype="float32", sparse=False, ragged=False)


def recorded(name: str, function: str, inputs: list, kind: str = "TFOpLambda") -> dict:
    return layer(name, kind, inputs, trainable=True, dtype="float32", function=function)


def part(start: int | None = None, stop: int | None = None, step: int | None = None) -> dict:
    return {"start": start, "stop": stop, "step": step}


def write(path: Path, config: dict, weights: Mapping[str, Mapping[str, np.ndarray]]) -> Path:
    """A file of Keras 2.15: the configuration as JSON, weights in groups in the order of the layers."""
    import h5py

    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.15.0", "tensorflow"
        file.attrs["model_config"] = json.dumps(config)
        group = file.create_group("model_weights")
        names = [each["name"] for each in config["config"]["layers"]]
        group.attrs["layer_names"] = [name.encode() for name in names]
        for name in names:
            held = group.create_group(name)
            held.attrs["weight_names"] = [f"{name}/{key}:0".encode() for key in weights.get(name, {})]
            for key, value in weights.get(name, {}).items():
                held[f"{name}/{key}:0"] = value
    return path


def export(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in ``folder``; whatever it says, never a traceback."""
    command = [sys.executable, "-m", "convertkit", "export", *arguments, "-o", "out", "--force"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr
    return done


def parity(folder: Path) -> float:
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["passed"]
    return max(float(each["relative"]) for each in report["steps"][-1]["parity"]["versus_source"]["tensors"])
