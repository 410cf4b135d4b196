"""``--target onnxruntime --device this``: what is measured becomes a table, is kept, and decides as any other does."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt
import pytest
from onnx import ModelProto, helper

import convertkit
from convertkit.errors import UsageError
from convertkit.formatting import estimate_lines
from convertkit.profile import WEIGHTED
from convertkit.recipe import ExportOptions, MeasuredDevice
from convertkit.report.schema import schema
from convertkit.targets.onnxruntime import OnnxRuntimeTarget, estimate
from convertkit.targets.onnxruntime.estimate import estimate_here, estimates
from convertkit.targets.onnxruntime.measured.here import measured_tables
from convertkit.targets.onnxruntime.profile import costs, costs_for, profile
from convertkit.targets.onnxruntime.stage import DeliverOnnx
from convertkit.targets.tflite import TfliteTarget
from tests import measured_device, onnx_models

COSTS = Path(estimate.__file__).parent / "costs"
WHEN = "2026-11-26 21:20 UTC"
CALL, NODE = 4000.0, 200.0


class Counted:
    """A clock of a made-up machine, on which each operator takes so much an element; nothing runs."""

    def nanoseconds(
        self, models: Sequence[ModelProto], shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> list[float]:
        return [self.of(model, float(np.prod(shape))) for model in models]

    def of(self, model: ModelProto, elements: float) -> float:
        kinds = [node.op_type for node in model.graph.node]
        whole = "QuantizeLinear" in kinds
        nodes = sum(not kind.endswith("QuantizeLinear") and kind != "DequantizeLinear" for kind in kinds)
        ends = 2 * (500 + 0.05 * elements) if whole else 0.0
        return CALL + ends + nodes * (NODE + elements * (0.1 if whole else 0.2))


def committed(name: str) -> Mapping[str, Any]:
    """The table of another device in the form of this one's."""
    return tomllib.loads((COSTS / f"{name}.toml").read_text())


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    return measured_tables(Counted())


def device(tables: Mapping[str, Any]) -> MeasuredDevice:
    return MeasuredDevice("onnxruntime", "made up", WHEN, json.dumps(tables))


def test_what_the_clock_tells_is_in_the_table(found: Mapping[str, Any]) -> None:
    rows, known = found["cost"], committed("x86")
    assert rows.keys() == known["cost"].keys()
    assert found["other"].keys() == known["other"].keys()
    assert rows["Add"] == pytest.approx(
        {"float32": 0.2, "int8": 0.1, "float32_call": NODE, "int8_call": NODE}, rel=0.01
    )
    assert rows["QuantizeLinear"]["float32"] == pytest.approx(0.05, rel=0.01)
    assert found["other"]["Tanh"]["float32"] == pytest.approx(
        0.2 / 2, rel=0.01
    )  # the clock counts half of what it reads
    assert rows["Gelu.part"]["float32"] > 0  # no chain has it: that of x86, at this machine's pace
    assert found["call"]["call"] == pytest.approx(CALL)


def test_the_table_decides_and_estimates(found: Mapping[str, Any], tmp_path: Path) -> None:
    own = device(found)
    priced = costs_for(("this",), own)
    assert priced["Add"].integer == pytest.approx(0.1, rel=0.01)
    assert all(max(priced[kind].float32, priced[kind].float32_element) > 0 for kind in WEIGHTED)
    options = ExportOptions(source="", precision="int8", device=("this",))
    assert profile(options).costs["Conv"] == costs()["Conv"], "another target measured, and not this one"
    path = onnx_models.write(
        tmp_path, onnx_models.model([helper.make_node("Tanh", ["x"], ["y"])], {"x": [8, 8]}, {"y": [8, 8]})
    )
    told = estimate_here(path, own)
    assert told.measured == f"made up, {WHEN}"
    assert told.ms == pytest.approx((CALL + found["other"]["Tanh"]["float32_call"] + 64 * 0.1) / 1e6, rel=0.01)
    same = estimate_here(path, device(committed("x86")))
    assert same.ms == estimates(path, ("x86",))[0].ms


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured_device.three_convolutions(tmp_path_factory.mktemp("source"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """This machine has the table of servers; every measurement is noted."""
    return measured_device.noted(monkeypatch, OnnxRuntimeTarget, committed("x86"))


def exported(source: Path, place: Path, **how: Any) -> convertkit.Result:
    return measured_device.exported(source, "onnxruntime", place, **how)


def test_it_decides_as_the_same_table_of_another_name(source: Path, tmp_path: Path, measured: list[str]) -> None:
    ours = exported(source, tmp_path / "this", device="this")
    assert measured == ["onnxruntime"]
    named = exported(source, tmp_path / "named", device="x86")
    assert ours.artifact.path.read_bytes() == named.artifact.path.read_bytes()
    jsonschema.validate(ours.report, schema())
    devices = {each["device"]: each for each in ours.report["estimates"]["devices"]}
    assert devices["this"]["shown"]
    assert not devices["x86"]["shown"]
    assert devices["this"]["ms"] == devices["x86"]["ms"]
    assert devices["this"]["layers_ms"]
    told = "\n".join(estimate_lines(ours.report["estimates"]))
    assert f"by cost tables measured on {devices['this']['measured']}" in told
    assert "float32_call" not in (ours.path / "manifest.json").read_text()


def test_a_cache_keeps_it(source: Path, tmp_path: Path, measured: list[str]) -> None:
    first = exported(source, tmp_path / "first", device="this", cache=tmp_path / "cache")
    second = exported(source, tmp_path / "second", device="this,arm64-a76", cache=tmp_path / "cache")
    assert measured == ["onnxruntime"]
    told = [each.report["estimates"]["devices"][-1]["measured"] for each in (first, second)]
    assert told[0] == told[1]


def test_each_target_measures_its_own_kernels(
    source: Path, tmp_path: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[str, ...]] = []
    whole = tomllib.loads((COSTS.parents[1] / "tflite" / "costs" / "arm64-a76.toml").read_text())
    kernels = tomllib.loads((COSTS.parents[1] / "tflite" / "costs" / "arm64-a76.kernels.toml").read_text())
    monkeypatch.setattr(TfliteTarget, "measure_here", lambda target: json.dumps({**whole, "kernels": kernels}))
    made = DeliverOnnx.__init__

    def noted(self: DeliverOnnx, *given: Any, **how: Any) -> None:
        used.append(tuple(json.loads(how["measured"].tables)))
        made(self, *given, **how)

    monkeypatch.setattr(DeliverOnnx, "__init__", noted)
    targets, data = ("tflite", "onnxruntime"), tmp_path / "calib.npz"
    np.savez(data, **measured_device.samples())
    options = ExportOptions(str(source), targets, str(tmp_path / "both"), "int8", calib=str(data), device=("this",))
    convertkit.export_all(options)
    assert measured == ["onnxruntime"]
    assert used
    assert set(used) == {tuple(committed("x86"))}


def test_where_integers_are_not_placed_it_does_nothing(source: Path, tmp_path: Path, measured: list[str]) -> None:
    with pytest.raises(UsageError, match="--device does nothing for onnxruntime without --int8"):
        convertkit.export(source, "onnxruntime", w8=True, device="this", output=tmp_path / "out")
    assert measured == []


@pytest.mark.nightly
def test_this_machine_has_a_table() -> None:
    """Measured in earnest: whatever the clock says, the table can be used."""
    priced = costs_for(("this",), device(measured_tables()))
    assert all(np.isfinite(each) and each >= 0 for cost in priced.values() for each in cost.times(1e4, 2e4))
    for kind in WEIGHTED:
        assert max(priced[kind].times(1e6, 1e5)) > 0
