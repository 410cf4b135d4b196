"""``--device this``: what is measured becomes a table, is kept, and decides as any other device's does."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import convertkit
from convertkit.errors import SourceError, UsageError
from convertkit.formatting import estimate_lines
from convertkit.kernel_costs import DenseShape, Tile
from convertkit.options.flags import options_from
from convertkit.recipe import MeasuredDevice
from convertkit.release.cells import load
from convertkit.release.run import Running, run
from convertkit.report.schema import schema
from convertkit.targets.forms.fitting import nonnegative
from convertkit.targets.forms.machine import machine
from convertkit.targets.tflite import TfliteTarget
from convertkit.targets.tflite.costs import tables as module
from convertkit.targets.tflite.costs.calls import call_costs
from convertkit.targets.tflite.costs.measured import here
from convertkit.targets.tflite.costs.measured.assembled import USUAL, Found, caches_of, costs, on_the_fly, with_near
from convertkit.targets.tflite.costs.measured.here import measured_tables
from convertkit.targets.tflite.costs.measured.tiles import (
    DENSE,
    LARGE,
    STEPS,
    STRIDED,
    best_one_way,
    best_within,
    fitted,
)
from convertkit.targets.tflite.costs.tables import tables
from convertkit.targets.tflite.inspection import Placed, placed_operators
from tests import measured_device

COSTS = Path(module.__file__).parent
WHEN = "2026-11-23 17:20 UTC"


class Counted:
    """A clock of a made-up machine, on which each operator takes what ``nanoseconds`` says; nothing runs."""

    exact = False

    def nanoseconds(self, paths: Sequence[Path]) -> list[float]:
        return [sum(self.of(each) for each in placed_operators(path)) for path in paths]

    def longer(self, pairs: Sequence[tuple[Path, Path]]) -> list[float]:
        return [long - short for short, long in map(self.nanoseconds, pairs)]

    def of(self, placed: Placed) -> float:
        whole = placed.told.precision == "int8"
        if placed.told.macs:
            return 100 + placed.told.macs * (0.01 if whole else 0.04)
        return 30 + placed.written_elements * (0.1 if whole else 0.2)


def committed(name: str) -> Mapping[str, Any]:
    """The tables of another device in the form of this one's."""
    costs, kernels = (tomllib.loads((COSTS / f"{name}{end}").read_text()) for end in (".toml", ".kernels.toml"))
    return {**costs, "kernels": kernels}


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    return measured_tables(within=Counted(), alone=Counted())


def test_what_the_clock_tells_is_in_the_table(found: Mapping[str, Any]) -> None:
    rows = found["ns_per_unit"]
    assert rows.keys() == committed("x86")["ns_per_unit"].keys()
    assert rows["Add"]["float32_near"] == pytest.approx(0.2, rel=0.01)
    assert rows["Add"]["int8_near"] == pytest.approx(0.1, rel=0.01)
    assert rows["Add"]["float32_call"] == pytest.approx(30, rel=0.1)
    assert rows["Gemm"]["float32"] == pytest.approx(0.04, rel=0.01)
    assert rows["Gemm"]["int8"] == pytest.approx(0.01, rel=0.01)
    assert rows["PRelu"]["float32"] > 0  # no chain has it: that of x86, at this machine's pace


def test_a_large_window_is_timed_as_it_is_written(found: Mapping[str, Any]) -> None:
    """In float as a sum of three small ones, which have fast kernels; in integers as it is."""
    rows = found["ns_per_unit"]["Conv.depthwise_large"]
    assert rows["float32"] == pytest.approx(0.04 + 2 * 0.2 / 49, rel=0.01)
    assert rows["int8"] == pytest.approx(0.01, rel=0.01)


def test_kernels_cost_what_the_clock_told(found: Mapping[str, Any]) -> None:
    device = MeasuredDevice("tflite", "made up", WHEN, json.dumps(found))
    kernels = tables(("this",), device).kernel_costs
    for shape in (DenseShape(1, 64, 128), DenseShape(32, 64, 64)):
        products = shape.pixels * shape.weights
        integer, real = kernels.times(shape)
        assert integer == pytest.approx(100 + 0.01 * products, rel=0.05)
        assert real == pytest.approx(100 + 0.04 * products, rel=0.05)
    assert kernels.loading_ns(1 << 20) == pytest.approx((0, 0), abs=100)


def test_a_row_alone_has_its_own_price() -> None:
    """Each weight is loaded for one product: three times the time of a product that shares it."""

    class Loads(Counted):
        def of(self, placed: Placed) -> float:
            alone = placed.written_elements == placed.weight[0]
            return 50 + placed.told.macs * (0.06 if alone else 0.02)

    tile = best_within("float32_dense", DENSE, "float32", Loads(), lambda line: None)
    assert tile.nanoseconds(DenseShape(1, 64, 128)) == pytest.approx(50 + 0.06 * 64 * 128, rel=0.05)
    assert tile.nanoseconds(DenseShape(32, 64, 128)) == pytest.approx(50 + 0.02 * 32 * 64 * 128, rel=0.05)


def test_one_row_is_not_rounded_up() -> None:
    tile = Tile(1, 8, 1.0, 0.0, pixels=4, single=2.0)
    assert [tile.nanoseconds(DenseShape(rows, 8, 8)) for rows in (1, 2, 4)] == [128, 256, 256]


def test_fitted_costs_are_not_below_zero() -> None:
    rows = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    assert nonnegative(rows, rows @ (2.0, 5.0)) == pytest.approx([2.0, 5.0])
    assert nonnegative(rows, np.array([3.0, 2.0, 1.0])) == pytest.approx([0.0, 2.0])
    assert nonnegative(rows, -np.ones(3)) == pytest.approx([0.0, 0.0])


def test_what_goes_one_way_tells_channels_from_filters() -> None:
    """Two tiles that explain chains there and back alike (6.6 and 6.8 %): one is twice too slow for three channels.

    Nanoseconds of the layers with other filters than channels, emulated on a core with int8 matrix products.
    """
    swapped = 0.0657, Tile(16, 8, 0.0125, 0.588, 4, call=14.6)
    right = 0.068, Tile(8, 16, 0.0129, 0.380, 4)
    layers = [each for each in STEPS if each.work <= LARGE]
    assert best_one_way((swapped, right), layers, (34764.0, 34581.0, 87976.0, 167384.0, 306983.0)) == right


class Tiled(Counted):
    """A machine whose convolutions round up to so many channels and filters."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self._channels, self._filters = channels, filters

    def of(self, placed: Placed) -> float:
        filters, height, width, channels = placed.weight
        rounded = -(-channels // self._channels) * self._channels * -(-filters // self._filters) * self._filters
        return 0.01 * (placed.written_elements // filters) * height * width * rounded


@pytest.mark.parametrize("sides", [(8, 16), (16, 8)], ids=str)
def test_a_tile_is_found_from_what_goes_both_ways_and_one(sides: tuple[int, int]) -> None:
    """There and back both explain every time."""
    layers = [each for each in STEPS if each.work <= 2e7]
    machine = Tiled(*sides)
    tile = best_within("int8", layers, "int8", machine, lambda line: None, machine)
    assert (tile.channels, tile.filters) == sides


def test_products_alone_may_be_all_that_costs() -> None:
    """Microseconds of transposed convolutions, emulated on a core with int8 matrix products; an output would cost less
    than nothing there, and a tile that rounds up whatever it can is no better answer."""
    times = [1e3 * each for each in (1123.5, 2662.8, 4786.9, 82.3, 3616.3, 139.7, 1176.7, 19774.1, 1532.9)]
    tile, error = fitted(STRIDED, times)
    assert tile.output == 0
    assert error < 0.1
    assert all(0.75 < tile.nanoseconds(each.shape) / time < 1.33 for each, time in zip(STRIDED, times, strict=True))


def test_products_that_quantize_what_they_read_may_cost_nothing_more() -> None:
    """Nanoseconds more, emulated on a core with int8 matrix products, where they have the faster kernels.

    That price is not x86's at the core's pace, as if nothing had measured it.
    """
    sizes = ((64, 512, 128), (64, 128, 128), (64, 128, 512), (197, 768, 192), (197, 192, 192), (197, 192, 768))
    row = on_the_fly(sizes, (-4338.0, 552.0, -12841.0, -44467.0, -12905.0, -69891.0))
    assert set(row.values()) == {0.0}
    x86 = committed("x86")
    table = costs(Found({"Conv.depthwise": x86["ns_per_unit"]["Conv.depthwise"]}, {"Relu": (0.3, 0.1)}, row), x86)
    assert table["ns_per_unit"]["DynamicQuantizeLinear"] == row
    assert table["ns_per_unit"]["PRelu"]["float32"] > 0


def test_what_quantizing_on_the_fly_takes_is_fitted_without_prices_below_zero() -> None:
    """Of six products of an A76; a row would cost less than nothing, and what is left without it is fitted again."""
    sizes = ((64, 512, 128), (64, 128, 128), (64, 128, 512), (197, 768, 192), (197, 192, 192), (197, 192, 768))
    more = np.array([32034.0, 9733.0, 15770.0, 184132.0, 42315.0, 121075.0])
    row = on_the_fly(sizes, more)
    told = [rows * (deep * row["float32"] + row["float32_call"] + wide * row["float32_element"])
            for rows, deep, wide in sizes]  # fmt: skip
    assert row["float32_call"] == 0
    assert sum(told) == pytest.approx(more.sum(), rel=0.1)


def test_a_machine_is_its_processor_and_the_runtime(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    core = "processor\t: {}\nmodel name\t: Big One\nflags\t\t: b a\nbogomips\t: {}\n\n"
    told.write_text(core.format(0, 5000.1) + core.format(1, 5000.2))
    first = machine("ai-edge-litert", told)
    assert first["name"] == "Big One"
    told.write_text(core.format(0, 4999.9))
    assert machine("ai-edge-litert", told) == first
    told.write_text(core.format(0, 5000.1).replace("b a", "b a vnni"))
    assert machine("ai-edge-litert", told)["features"] != first["features"]
    assert machine("ai-edge-litert", tmp_path / "none")["name"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured_device.three_convolutions(tmp_path_factory.mktemp("source"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """This machine has the tables of a phone's core; every measurement is noted."""
    return measured_device.noted(monkeypatch, TfliteTarget, committed("arm64-a76"))


def exported(source: Path, place: Path, **how: Any) -> convertkit.Result:
    return measured_device.exported(source, "tflite", place, **how)


def test_it_decides_as_the_same_table_of_another_name(source: Path, tmp_path: Path, measured: list[str]) -> None:
    ours = exported(source, tmp_path / "this", device="this")
    assert measured == ["tflite"]
    phone = exported(source, tmp_path / "phone", device="arm64-a76")
    assert ours.artifact.path.read_bytes() == phone.artifact.path.read_bytes()
    jsonschema.validate(ours.report, schema())
    devices = {each["device"]: each for each in ours.report["estimates"]["devices"]}
    assert devices["this"]["shown"]
    assert not devices["arm64-a76"]["shown"]
    layers = devices["this"]["layers_ms"]
    assert layers
    phones, own = call_costs("arm64-a76"), call_costs("this")  # what a call takes beside its operators is not measured
    more = phones.call - own.call + len(layers) * (phones.operator - own.operator)
    assert devices["arm64-a76"]["ms"] - devices["this"]["ms"] == pytest.approx(more / 1e6, abs=1e-4)
    assert devices["this"]["measured"].endswith(" UTC")
    told = "\n".join(estimate_lines(ours.report["estimates"]))
    assert f"by cost tables measured on {devices['this']['measured']}" in told
    assert "ns_per_unit" not in (ours.path / "manifest.json").read_text()


def test_a_cache_keeps_it(source: Path, tmp_path: Path, measured: list[str]) -> None:
    first = exported(source, tmp_path / "first", device="this", cache=tmp_path / "cache")
    second = exported(source, tmp_path / "second", device="this,x86", cache=tmp_path / "cache")
    assert measured == ["tflite"]
    told = [each.report["estimates"]["devices"][-1]["measured"] for each in (first, second)]
    assert told[0] == told[1]
    exported(source, tmp_path / "third", device="this")
    assert measured == ["tflite"] * 2


def test_the_name_stands_for_one_machine_alone(source: Path, tmp_path: Path, measured: list[str]) -> None:
    with pytest.raises(UsageError, match="--device this measures the machine at hand, and with --scheduler others"):
        options_from({"source": "m.onnx", "target": "tflite", "w8": True, "device": "this", "scheduler": "tcp://x:1"})
    file = exported(source, tmp_path / "made", device="this").artifact.path
    with pytest.raises(UsageError, match="without --device, bench measures on this machine"):
        convertkit.bench(file, device="this")
    recipe = tmp_path / "convertkit.toml"
    cells = 'targets = ["tflite"]\nprecisions = ["w8"]\ndevice = "this"\n'
    recipe.write_text(f'[models.net]\nsource = "{source}"\n{cells}')
    with pytest.raises(UsageError, match="net:tflite:w8: the device this is measured anew on each machine"):
        run(load(recipe), Running(output=str(tmp_path / "release")))
    with pytest.raises(UsageError, match="--device this: no device is called so"):
        convertkit.export(source, "android", w8=True, device="this", output=tmp_path / "app")


def test_a_broken_source_is_told_before_anything_is_measured(source: Path, tmp_path: Path, measured: list[str]) -> None:
    (tmp_path / "broken.onnx").write_bytes(source.read_bytes()[:-100])
    with pytest.raises(SourceError):
        exported(tmp_path / "broken.onnx", tmp_path / "out", device="this")
    assert measured == []


@pytest.mark.nightly
def test_this_machine_has_a_table() -> None:
    """Measured in earnest: whatever the clock says, the table can be used."""
    device = MeasuredDevice("tflite", "here", WHEN, json.dumps(measured_tables()))
    own = tables(("this",), device)
    assert all(np.isfinite(each) and each >= 0 for cost in own.costs.values() for each in cost.times(1e4, 2e4))
    integer, real = own.kernel_costs.times(DenseShape(16, 64, 64))
    assert 0 < integer < 1e6
    assert 0 < real < 1e6


@pytest.mark.parametrize(("second_level", "near"), [(0, None), (1 << 20, None), (2 << 20, 262144), (8 << 20, 1 << 20)])
def test_what_lies_beyond_the_near_caches_is_timed_with_an_image_that_does(second_level: int, near: int | None) -> None:
    """56 × 56 × 64 numbers, read and written, are 1.6 MB: servers with 2 MB of second level hold them."""
    caches = caches_of(second_level)
    assert caches.near_elements == near
    assert (caches == USUAL) is (near is None)
    table = {"near_elements": 5, "ns_per_unit": {"Add": {"float32": 1.0}, "Conv.depthwise": {"float32": 2.0}}}
    told = with_near(table, caches)
    assert told["near_elements"] == (near or 5)
    assert told["ns_per_unit"]["Conv.depthwise"].get("near_elements") == (9 * near if near else None)
    assert told["ns_per_unit"]["Add"] == {"float32": 1.0}


@pytest.mark.parametrize(("told", "near"), [("2048K\n", 262144), ("many\n", None), ("", None)])
def test_the_second_level_of_this_machine_decides(
    told: str, near: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = tmp_path / "size"
    size.write_text(told)
    monkeypatch.setattr(here, "_SECOND_LEVEL", size)
    table = measured_tables(within=Counted(), alone=Counted())
    assert table["near_elements"] == (near or committed("x86")["near_elements"])
