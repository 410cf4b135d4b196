"""In which form the steps of a recurrent layer are written, by what loops and memory cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.costs.calls import CallCosts
from convertkit.targets.tflite.costs.estimate import estimates
from convertkit.targets.tflite.costs.loops import (
    MAX_STEPS,
    MAX_STEPS_NAMED,
    MOST_HELD,
    TOGETHER,
    WRITTEN_OUT,
    LoopCosts,
    Loops,
    loops,
)
from convertkit.targets.tflite.devices import DEVICES
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.passes import Options

ONE = LoopCosts(10.0, 1.0, 0.0, ((100.0, 1.0), (1000.0, 3.0)))
"""A loop takes 10, a turn 1, a byte 1 where more than 100 are held, 3 where more than 1000 are."""


@pytest.mark.parametrize(
    ("steps", "weight_bytes", "together", "layers", "expected"),
    [
        (10, 10.0, WRITTEN_OUT, 1, 0.0),
        (10, 11.0, WRITTEN_OUT, 1, 110.0),
        (10, 10.0, WRITTEN_OUT, 2, 100.0),
        (10, 110.0, WRITTEN_OUT, 1, 3300.0),
        (10, 10.0, 5, 2, 12.0),
        (11, 30.0, 5, 1, 12.0 + 330.0),
        (11, 30.0, 2, 1, 15.0),
    ],
)
def test_costs(steps: int, weight_bytes: float, together: int, layers: int, expected: float) -> None:
    assert ONE.nanoseconds(steps, weight_bytes, together, layers) == pytest.approx(expected)


def test_the_weighted_sum_decides() -> None:
    cheap, dear = LoopCosts(10.0, 1.0, 0.0, ((100.0, 1.0),)), LoopCosts(10000.0, 1.0, 0.0, ((100.0, 1.0),))
    chosen = [Loops(((share, cheap), (1 - share, dear))).together(20, 20.0, 1) for share in (1.0, 0.5)]
    assert chosen == [5, WRITTEN_OUT]


@pytest.mark.parametrize("device", ["this", *DEVICES])
def test_on_every_device(device: str) -> None:
    known = loops((device,))
    assert known.together(1, 1e6, 1) == WRITTEN_OUT
    assert known.together(8, 3e3, 1) == WRITTEN_OUT
    assert known.together(MAX_STEPS, 1 << 20, 1) in (1, 2, 5)
    assert known.together(MAX_STEPS_NAMED + 1, 3e3, 1) in (2, 5)
    assert known.together(20, 2.0 * MOST_HELD, 1) == min(TOGETHER)


def test_a_named_device_may_have_longer_sequences_written_out() -> None:
    """A GRU of 64 units in int8, twice: the file grows, which a model for all devices does not pay."""
    assert loops(("x86-vnni",)).together(50, 12288, 2) == WRITTEN_OUT
    assert loops(("x86-amx",)).together(50, 12288, 2) == 5
    assert loops(("arm64-a76",)).together(50, 12288, 2) == 5
    assert loops(()).together(50, 12288, 2) == 5


def test_phones_and_servers_differ() -> None:
    """A GRU of 64 units over 32 steps: its copies are less than a server's caches hold, more than an A76's."""
    assert loops(("x86",)).together(32, 49152, 1) == WRITTEN_OUT
    assert loops(("arm64-a76",)).together(32, 49152, 1) == 5


def model(steps: int, stored: bool, direction: str, units: int) -> onnx.ModelProto:
    """An LSTM."""
    rng, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    shape = (count, 4 * units, units)
    constants, nodes = [], []
    for name in ("w", "r"):
        if stored:
            constants.append(numpy_helper.from_array(rng.integers(-9, 9, shape).astype(np.int8), f"{name}_integers"))
            constants.append(numpy_helper.from_array(np.full(shape[1], 0.01, np.float32), f"{name}_scale"))
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}_integers", f"{name}_scale"], [name], axis=1))
        else:
            constants.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
    nodes.append(helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=units, direction=direction))
    infos = [
        helper.make_tensor_value_info(name, 1, sizes)
        for name, sizes in {"x": [steps, 1, units], "y": [steps, count, 1, units]}.items()
    ]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def program(made: onnx.ModelProto, path: Path, device: str) -> Program:
    onnx.save(made, path)
    return compile_model(load_model(path), Options(device=(device,))).program


@pytest.mark.parametrize(("stored", "direction", "loops_made"), [
    (False, "forward", 1), (True, "forward", 0), (True, "bidirectional", 2), (False, "bidirectional", 2),
])  # fmt: skip
def test_copies_of_a_file_count(stored: bool, direction: str, loops_made: int, tmp_path: Path) -> None:
    """An LSTM of 64 units over 32 steps on an A76: a byte or four for each weight, in one layer or two."""
    made = program(model(32, stored, direction, 64), tmp_path / "m.onnx", "arm64-a76")
    assert made.recurrences == (2 if direction == "bidirectional" else 1)
    codes = [operation.code for subgraph in made.subgraphs for operation in subgraph.operations]
    assert codes.count("WHILE") == loops_made


@dataclass(frozen=True, slots=True)
class Always:
    """Stands for the costs that choose a form."""

    form: int

    def together(self, steps: int, weight_bytes: float, layers: int) -> int:
        """That form."""
        return self.form


def test_a_file_is_told_what_its_copies_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 written steps, 1 MB of weights: more than an A76's near caches hold, not more than a server's."""
    onnx.save(model(64, True, "forward", 64), tmp_path / "m.onnx")
    found: dict[tuple[str, int], float] = {}
    monkeypatch.setattr("convertkit.targets.tflite.costs.estimate.call_costs", lambda _: CallCosts(0.0, 0.0, 0.0))
    for form in (WRITTEN_OUT, 5):
        monkeypatch.setattr("convertkit.targets.tflite.compile.loops", lambda devices, form=form: Always(form))
        compile_model(load_model(tmp_path / "m.onnx"), Options(device=("arm64-a76",))).write(tmp_path / "m.tflite")
        for each in estimates(tmp_path / "m.tflite", ["x86-vnni", "arm64-a76"]):
            found[each.device, form] = each.ms - sum(node.ms for node in each.nodes)
    assert found["arm64-a76", WRITTEN_OUT] > 4 * found["arm64-a76", 5] > 0
    assert found["x86-vnni", 5] == 0 < found["x86-vnni", WRITTEN_OUT] < found["arm64-a76", WRITTEN_OUT] / 10
