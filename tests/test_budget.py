"""The point of the trade-off that ``--budget`` takes, and what is said where none fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import onnx
import pytest

import convertkit
from convertkit.budget import Budget, Point, amount, budget_of
from convertkit.errors import ParityError, Unsupported, UsageError
from convertkit.recipe import ExportOptions
from convertkit.report.schema import schema
from convertkit.steps.budget import ChooseWithin, _Search
from tests.installed import needs
from tests.quantization.models import images, small_cnn


@pytest.mark.parametrize(
    ("text", "kind", "limit"),
    [("size=200KB", "size", 2e5), ("size=1.5MiB", "size", 1.5 * 2**20), ("size=900", "size", 900),
     ("latency=2ms", "latency", 2), ("latency=350us", "latency", 0.35), ("latency=0.01s", "latency", 10)],
)  # fmt: skip
def test_limits_are_read(text: str, kind: str, limit: float) -> None:
    assert budget_of(text) == Budget(kind, pytest.approx(limit))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["200KB", "size=2ms", "latency=2KB", "size=0", "latency=2", "accuracy=3", "size=-1KB"])
def test_what_is_not_a_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected size=200KB or latency=2ms"):
        budget_of(text)


def test_amounts_are_told_in_their_units() -> None:
    assert [amount(2100, "size"), amount(3.25e6, "size"), amount(0.21, "latency")] == ["2.1 KB", "3.25 MB", "0.21 ms"]


def point(precision: str, size: int, snr_db: float, agreement: float | None, *, fits: bool) -> Point:
    return Point(precision, None, None, None, size, None, snr_db, agreement, fits)  # type: ignore[arg-type]


def search(*points: Point, **choices: object) -> _Search:
    options = ExportOptions("x", budget="size=1KB", **choices)  # type: ignore[arg-type]
    return _Search(options, None, None, None, None, list(points))  # type: ignore[arg-type]


def test_classes_count_before_noise_and_noise_before_size() -> None:
    points = [point("float32", 4000, 120, 1, fits=False), point("w8", 900, 30, 0.98, fits=True),
              point("int8", 800, 25, 1, fits=True), point("w4", 700, 24, 1, fits=True)]  # fmt: skip
    choice = search(*points).choice()
    assert choice.precision == "int8"
    assert [each.chosen for each in choice.points] == [False, False, True, False]
    assert choice.note == "--budget size=1KB: of 4 points int8 keeps most in 0.8 KB"


def test_what_keeps_too_little_is_not_taken_unless_a_gate_judges() -> None:
    points = [point("float32", 4000, 120, 1, fits=False), point("w4", 700, 4, 0.6, fits=True)]
    with pytest.raises(
        ParityError, match=r"keeps less than 10 dB .*the nearest that keeps more takes 4.0 KB \(float32"
    ):
        search(*points).choice()
    assert search(*points, max_drop=5.0).choice().precision == "w4"


@pytest.mark.parametrize(
    "changed",
    [{"size_first": True}, {"passes": ("a",)}, {"target_options": {"onnxruntime": {"ir_version": "10"}}}, {"seed": 1}],
)  # fmt: skip
def test_what_makes_other_points_is_another_search(changed: dict[str, object]) -> None:
    """Else a cache would choose by points that were made otherwise, and what is delivered might be too large."""
    options = ExportOptions("x", targets=("onnxruntime",), budget="size=1KB", precision="w4")
    plain, other, trained = (
        ChooseWithin(None, None, each, "onnxruntime", "data").decides()  # type: ignore[arg-type]
        for each in (options, replace(options, **changed), replace(options, recover=2.0))  # type: ignore[arg-type]
    )
    assert plain != other
    assert plain == trained, "training comes behind the choice"


@pytest.mark.parametrize("fits", [True, False])
def test_where_nothing_keeps_enough_no_point_is_said_to(fits: bool) -> None:
    points = [point("int8", 4000, 8, 0.9, fits=fits), point("w4", 700, 4, 0.6, fits=fits)]
    with pytest.raises(ParityError, match=r"nothing that could be made keeps 10 dB .*the most is 8.0 dB \(int8\)"):
        search(*points).choice()


def test_the_nearest_is_told_where_nothing_fits() -> None:
    points = [point("float32", 4000, 120, 1, fits=False), point("w8", 2100, 30, 1, fits=False)]
    with pytest.raises(Unsupported, match=r"the nearest takes 2.1 KB \(w8, 30.0 dB\)"):
        search(*points).choice()


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cnn") / "cnn.onnx"
    onnx.save(small_cnn(), path)
    return path


def test_an_export_keeps_to_its_budget_and_shows_the_trade_off(cnn: Path, tmp_path: Path) -> None:
    whole = convertkit.export(str(cnn), "onnxruntime", output=str(tmp_path / "whole")).artifact.size_bytes
    limit = whole - 1200
    result = convertkit.export(
        str(cnn), "onnxruntime", output=str(tmp_path / "out"), calib={"x": images(40)}, budget=f"size={limit}"
    )
    assert result.artifact.size_bytes <= limit
    points = result.report["trade_off"]
    (chosen,) = [each for each in points if each["chosen"]]
    assert chosen["fits"]
    assert chosen["bytes"] == result.artifact.size_bytes
    assert not points[0]["fits"]
    assert points[0]["precision"] == "float32"
    assert any("--budget" in note for note in result.report["notes"])
    assert "--budget" not in result.report["command"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{chosen['told']}: chosen" in page
    jsonschema.validate(json.loads((tmp_path / "out" / "report.json").read_text()), schema())


def test_what_lies_beside_the_model_does_not_count(cnn: Path, tmp_path: Path) -> None:
    """A folder for TensorRT has scripts, golden vectors and a README, which take more than this model."""
    whole = convertkit.export(str(cnn), "tensorrt", output=str(tmp_path / "whole")).artifact
    beside = sum(file.stat().st_size for file in whole.path.parent.rglob("*") if file.is_file()) - whole.size_bytes
    assert beside > whole.size_bytes
    result = convertkit.export(
        str(cnn), "tensorrt", output=str(tmp_path / "out"), calib={"x": images(40)}, budget=f"size={whole.size_bytes}"
    )
    assert result.report["trade_off"][0]["bytes"] == result.artifact.size_bytes == whole.size_bytes


def test_an_impossible_budget_leaves_nothing(cnn: Path, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"--budget size=100B: nothing that keeps 10 dB fits; the nearest takes \d"):
        convertkit.export(
            str(cnn), "onnxruntime", output=str(tmp_path / "out"), calib={"x": images(40)}, budget="size=100B", w8=True
        )
    assert list(tmp_path.iterdir()) == []


def test_a_latency_needs_a_target_that_knows_one(cnn: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--budget latency=2ms: nothing tells what openvino takes before it runs"):
        convertkit.export(
            str(cnn), "openvino", output=str(tmp_path / "out"), calib={"x": images(40)}, budget="latency=2ms"
        )


def test_onnx_runtimes_tables_hold_a_latency_too(cnn: Path, tmp_path: Path) -> None:
    before = convertkit.bench(cnn, device="arm64-a76").estimated[0].ms
    result = convertkit.export(
        str(cnn), "onnxruntime", output=str(tmp_path / "out"), calib={"x": images(40)}, device="arm64-a76",
        budget=f"latency={0.95 * before:.6f}ms",
    )  # fmt: skip
    (after,) = convertkit.bench(result.path, device="arm64-a76").estimated
    assert after.ms <= 0.95 * before


def test_a_latency_is_kept_to_on_the_device(cnn: Path, tmp_path: Path) -> None:
    plain = convertkit.export(str(cnn), "tflite", output=str(tmp_path / "plain"))
    before = {each["device"]: each["ms"] for each in plain.report["estimates"]["devices"]}["arm64-a76"]
    limit = 0.9 * before
    result = convertkit.export(
        str(cnn), "tflite", output=str(tmp_path / "out"), calib={"x": images(40)}, device="arm64-a76",
        budget=f"latency={limit:.6f}ms", fp16=True,
    )  # fmt: skip
    after = {each["device"]: each["ms"] for each in result.report["estimates"]["devices"]}["arm64-a76"]
    assert after <= limit


def test_an_android_package_keeps_to_a_latency_by_the_model_inside(cnn: Path, tmp_path: Path) -> None:
    needs("ai_edge_litert")
    plain = convertkit.export(str(cnn), "android", output=str(tmp_path / "plain"), static={"N": 1})
    before = {each["device"]: each["ms"] for each in plain.report["estimates"]["devices"]}["arm64-a76"]
    result = convertkit.export(
        str(cnn), "android", output=str(tmp_path / "out"), calib={"x": images(40)}, device="arm64-a76", static={"N": 1},
        budget=f"latency={0.8 * before:.6f}ms", fp16=True,
    )  # fmt: skip
    (chosen,) = [each for each in result.report["trade_off"] if each["chosen"]]
    assert chosen["prune_channels"] is not None
    assert chosen["ms"] <= 0.8 * before
    assert chosen["bytes"] == result.artifact.size_bytes


def test_zeros_are_tried_where_the_package_is_deflated(cnn: Path, tmp_path: Path) -> None:
    """With other channels they lie in one trade-off, and what is chosen is the package alone."""
    needs("ai_edge_litert")
    plain = convertkit.export(str(cnn), "android", output=str(tmp_path / "plain"), static={"N": 1}, compress=True)
    result = convertkit.export(
        str(cnn), "android", output=str(tmp_path / "out"), calib={"x": images(40)}, static={"N": 1}, compress=True,
        fp16=True, budget=f"size={0.6 * plain.artifact.size_bytes:.0f}B",
    )  # fmt: skip
    points = result.report["trade_off"]
    zeros = {each["prune"]: each for each in points if each["prune"] is not None}
    assert zeros
    assert any(each["prune_channels"] for each in points)
    assert all(each["told"] == f"fp16, {float(share):.0%} of the weights zero" for share, each in zeros.items())
    (chosen,) = [each for each in points if each["chosen"]]
    assert chosen["bytes"] == result.artifact.size_bytes <= 0.6 * plain.artifact.size_bytes
