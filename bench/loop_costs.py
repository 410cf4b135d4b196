"""Fit what loops of recurrent layers cost, for ``targets/tflite/costs/loops.toml``: ``loop_costs.py FOLDER``.

With ``--core CORE`` of an emulated core, else of the machine at hand, which is ``--device``.  Layers of several sizes
are written to FOLDER in each form.  Prints each form's time, the fitted costs, and how much slower than the best the
form is that they choose.  ``--caches SIZE,…`` fits what a byte takes beyond each of these sizes, too; else those of
``loops.toml`` stay.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
from arm.clock import Emulated
from arm.cores import Core, cores
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.costs.loops import WRITTEN_OUT, LoopCosts, loops
from convertkit.targets.tflite.costs.measured.clock import Here
from convertkit.targets.tflite.passes import Options

GATES = {"GRU": 3, "LSTM": 4}
LAYERS = (
    ("GRU", 32, 16), ("GRU", 64, 16), ("GRU", 64, 32), ("GRU", 128, 32), ("LSTM", 64, 16), ("LSTM", 64, 32),
    ("LSTM", 128, 16), ("LSTM", 128, 32), ("LSTM", 256, 8), ("LSTM", 256, 16), ("LSTM", 256, 32),
    ("GRU", 64, 64), ("LSTM", 64, 64),
)  # fmt: skip
"""Operator, units and features, steps."""
FORMS = (WRITTEN_OUT, 5, 2, 1)
TURNS = np.geomspace(200, 30000, 60)
LOOPS = np.geomspace(2000, 300000, 60)
STEP_BYTES = range(4000, 30000, 1000)
PRICES = (0.0, *np.geomspace(0.0005, 0.1, 40))
"""Nanoseconds of a byte that a cache lacks."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One that is measured; ``stored``: its weights are int8."""

    op: str
    units: int
    steps: int
    stored: bool

    @property
    def weight_bytes(self) -> int:
        """Of one step."""
        return GATES[self.op] * self.units**2 * (1 if self.stored else 4)

    def model(self) -> onnx.ModelProto:
        """The layer alone."""
        rng, rows = np.random.default_rng(0), GATES[self.op] * self.units
        constants, nodes = [], []
        for name in ("w", "r"):
            shape = (1, rows, self.units)
            if self.stored:
                integers = rng.integers(-127, 128, shape).astype(np.int8)
                constants.append(numpy_helper.from_array(integers, f"{name}_integers"))
                constants.append(numpy_helper.from_array(np.full(rows, 0.001, np.float32), f"{name}_scale"))
                nodes.append(
                    helper.make_node("DequantizeLinear", [f"{name}_integers", f"{name}_scale"], [name], axis=1)
                )
            else:
                constants.append(numpy_helper.from_array(rng.normal(0, 0.1, shape).astype(np.float32), name))
        nodes.append(helper.make_node(self.op, ["x", "w", "r"], ["y"], hidden_size=self.units))
        shapes = {"x": [self.steps, 1, self.units], "y": [self.steps, 1, 1, self.units]}
        infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
        graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@dataclass(frozen=True, slots=True)
class Always:
    """Stands for the costs that choose a form."""

    form: int

    def together(self, steps: int, weight_bytes: float, layers: int) -> int:
        """That form."""
        return self.form


def written(layer: Layer, form: int, folder: Path, device: str) -> Path:
    """The file of ``layer`` in one form."""
    stored = "int8" if layer.stored else "float32"
    path = folder / f"{layer.op}{layer.units}x{layer.steps}.{stored}.{form}.tflite"
    source = path.with_suffix(".onnx")
    onnx.save(layer.model(), source)
    with patch("convertkit.targets.tflite.compile.loops", return_value=Always(form)):
        compile_model(load_model(source), Options(device=(device,))).write(path)
    return path


def caches_of(core: Core) -> tuple[tuple[float, float], ...]:
    """What a byte takes that each level lacks: the levels behind it are waited for one after the other."""
    waits = itertools.accumulate(core.streamed)
    return tuple((size, wait / 64 / core.clock_ghz) for (size, _), wait in zip(core.caches, waits, strict=True))


def added(layer: Layer, costs: LoopCosts) -> dict[int, float]:
    """Nanoseconds of each form beside its operators."""
    return {form: costs.nanoseconds(layer.steps, layer.weight_bytes, form, 1) for form in FORMS}


def loss(found: Mapping[Layer, Mapping[int, float]], costs: LoopCosts) -> tuple[float, float]:
    """Means of how far differences between forms are off, and of how much slower than the best the chosen form is.

    Both are shares of the best form's time.
    """
    errors, slower = [], []
    for layer, times in found.items():
        told, best = added(layer, costs), min(times.values())
        rest = np.array([times[form] - told[form] for form in FORMS])
        errors.append(np.abs(rest - np.median(rest)).mean() / best)
        slower.append(times[min(told, key=lambda form: told[form])] / best - 1)
    return float(np.mean(errors)), float(np.mean(slower))


def fitted(
    found: Mapping[Layer, Mapping[int, float]], caches: tuple[tuple[float, float], ...], prices: Sequence[float] = ()
) -> LoopCosts:
    """The costs with the least loss, one number after the other; what each cache lacks has one of ``prices``."""
    best = LoopCosts(30000, 2000, 16000, caches)
    for _ in range(4):
        for place in range(len(caches)) if prices else ():
            tried = [replace(best, caches=_with_price(best.caches, place, price)) for price in prices]
            best = min(tried, key=lambda costs: sum(loss(found, costs)))
        for name, values in (("loop", LOOPS), ("turn", TURNS), ("step_bytes", STEP_BYTES)):
            tried = [replace(best, **{name: float(value)}) for value in values]
            best = min(tried, key=lambda costs: sum(loss(found, costs)))
    return best


def _with_price(caches: tuple[tuple[float, float], ...], place: int, price: float) -> tuple[tuple[float, float], ...]:
    return tuple((size, price if each == place else known) for each, (size, known) in enumerate(caches))


def main() -> None:
    """Measure, fit and tell."""
    known = cores()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--core", choices=tuple(known))
    parser.add_argument("--device", choices=("x86", "x86-vnni", "x86-amx"), default="x86", help="the machine at hand")
    parser.add_argument("--caches", help="bytes, with commas; of the machine at hand")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    device = args.core or args.device
    layers = [Layer(*each, stored) for each in LAYERS for stored in (False, True)]
    paths = [written(layer, form, args.folder, device) for layer in layers for form in FORMS]
    clock = Emulated(known[args.core]) if args.core else Here(sweeps=8, rounds=10)
    times = np.array(clock.nanoseconds(paths)).reshape(len(layers), len(FORMS))
    found = {layer: dict(zip(FORMS, row, strict=True)) for layer, row in zip(layers, times, strict=True)}
    caches = caches_of(known[args.core]) if args.core else loops((device,)).machines[0][1].caches
    if args.caches:
        caches = tuple((float(size), 0.0) for size in args.caches.split(","))
    costs = fitted(found, caches, PRICES if args.caches else ())
    for layer, row in found.items():
        told = added(layer, costs)
        chosen = min(told, key=lambda form: told[form])
        each = ", ".join(f"{form or 'written out'}: {ns / 1e3:.1f}" for form, ns in row.items())
        print(f"{layer}: {each} µs; chosen {chosen or 'written out'}, {row[chosen] / min(row.values()):.2f} × the best")
    error, slower = loss(found, costs)
    print(f"{costs}\nmean error {100 * error:.0f} %, {100 * slower:.0f} % slower than the best")


if __name__ == "__main__":
    main()
