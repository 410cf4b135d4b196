"""Operators one by one: ONNX Runtime on our reading of a file against LiteRT on the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from handmade import T, const, litert, ours, write

RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f")


def ints(low: int, high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def flex(**options: float) -> bytes:
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in options.items():
            (builder.Float if isinstance(value, float) else builder.Int)(name, value)
    return bytes(builder.Finish())


@dataclass(frozen=True)
class Row:
    """One operator; arrays among ``inputs`` are fed, ``T`` are constants or absent."""

    builtin: str
    inputs: list[Any]
    outputs: list[T]
    options: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    within: float = 0.0
    custom: str = ""
    custom_options: bytes = b""

    def __str__(self) -> str:
        return self.custom or self.builtin


BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3.05], [5, 5, 6, 6], [0, 9, 1, 10]], "f")
SCORES = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], "f")
HEAD = {
    "max_detections": 4, "max_classes_per_detection": 1, "nms_score_threshold": 0.2, "nms_iou_threshold": 0.5,
    "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip
SEGMENTS = np.array([2, 0, 2, -1, 3], np.int32)
CONV3 = {"strideD": 2, "strideH": 2, "strideW": 1, "padding": 0}

SIGNED = np.array([[0, -0.0, 1, -1, -0.0, np.inf], [-0.0, -0.0, -0.0, -0.0, -2, -np.inf]], "f")

ROWS = [
    Row("ATAN2", [f32(3, 4), f32(3, 4)], [T((3, 4))], within=1e-6),
    Row("ATAN2", [np.array([0, 1, -1, 0, 2], "f"), np.array([0, 0, 0, -2, -1], "f")], [T((5,))], within=1e-6),
    Row("ATAN2", [SIGNED[0], SIGNED[1]], [T((6,))], within=1e-6),
    Row("RIGHT_SHIFT", [ints(-900, 900, 2, 5), ints(0, 9, 2, 5)], [T((2, 5), "int32")]),
    Row("RIGHT_SHIFT", [ints(0, 250, 6, dtype="uint8"), ints(0, 7, 6, dtype="uint8")], [T((6,), "uint8")]),
    Row("BUCKETIZE", [np.array([-5, 0, 0.5, 1, 7, 10, 11], "f")], [T((7,), "int32")], {"boundaries": [0.0, 1.0, 10.0]},
        "BucketizeOptions"),
    Row("FAKE_QUANT", [f32(4, 5) * 3], [T((4, 5))], {"min": -1.3, "max": 2.1, "numBits": 8}, "FakeQuantOptions", 1e-6),
    *(Row(f"UNSORTED_SEGMENT_{kind}", [f32(5, 3), SEGMENTS, const(5, "int32")], [T((5, 3))], within=1e-6)
      for kind in ("SUM", "PROD", "MAX", "MIN")),
    Row("UNSORTED_SEGMENT_SUM", [ints(0, 9, 2, 3, 4), const([[0, 1, 0], [2, 2, 0]], "int32"), const(3, "int32")],
        [T((3, 4), "int32")]),
    Row("MATRIX_DIAG", [f32(2, 3)], [T((2, 3, 3))]),
    Row("MATRIX_SET_DIAG", [f32(2, 3, 5), f32(2, 3)], [T((2, 3, 5))]),
    Row("MATRIX_SET_DIAG", [f32(4, 3), f32(3)], [T((4, 3))]),
    Row("SPARSE_TO_DENSE", [const([[0, 1], [2, 3]], "int32"), const([3, 4], "int32"), f32(2), const(0.5)], [T((3, 4))]),
    Row("SPARSE_TO_DENSE", [const([1, 4], "int32"), const([6], "int32"), ints(1, 9, 2), const(-1, "int32")],
        [T((6,), "int32")]),
    Row("NON_MAX_SUPPRESSION_V4", [BOXES, SCORES, const(5, "int32"), const(0.5), const(0.4)],
        [T((5,), "int32"), T((), "int32")]),
    Row("NON_MAX_SUPPRESSION_V5", [BOXES, SCORES, const(5, "int32"), const(0.5), const(0.4), const(0.0)],
        [T((5,), "int32"), T((5,)), T((), "int32")]),
    Row("CUSTOM", [f32(1, 6, 4), np.abs(f32(1, 6, 4)), const(np.abs(RNG.standard_normal((6, 4))) + 0.2)],
        [T((1, 4, 4)), T((1, 4)), T((1, 4)), T((1,))], within=1e-6, custom="TFLite_Detection_PostProcess",
        custom_options=flex(**HEAD)),
    Row("GATHER", [f32(2, 3, 4, 5), const([[1, 3, 0], [2, 2, 1]], "int32")], [T((2, 3, 3, 5))],
        {"axis": 2, "batchDims": 1}, "GatherOptions"),
    Row("DYNAMIC_UPDATE_SLICE", [f32(4, 5), f32(2, 3), np.array([3, 1], np.int32)], [T((4, 5))]),
    Row("CONV_3D_TRANSPOSE", [const([1, 6, 8, 5, 2], "int32"), const(RNG.standard_normal((3, 2, 3, 2, 4))),
        f32(1, 3, 4, 5, 4)], [T((1, 6, 8, 5, 2))], CONV3, "Conv3DOptions", 1e-5),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_operator_computes_what_the_runtime_does(tmp_path: Path, row: Row):
    inputs = [T(x.shape, x.dtype.name) if isinstance(x, np.ndarray) else x for x in row.inputs]
    feed = [x for x in row.inputs if isinstance(x, np.ndarray)]
    path = write(
        tmp_path / "one.tflite", row.builtin, inputs, row.outputs, row.options, row.table,
        custom=row.custom, custom_options=row.custom_options,
    )  # fmt: skip
    expected, got = litert(path, feed), ours(path, feed)
    assert any(np.any(each) for each in expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=row.within, atol=row.within)
