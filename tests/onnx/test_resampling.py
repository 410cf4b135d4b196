"""What coordinates in float32 may change, by the factor that a model resizes by."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from convertkit.onnx.resampling import float32_tolerance
from convertkit.stage import FLOAT32


def _resize(before: int | str, after: int | str, mode: str, coordinates: str = "half_pixel") -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape([1, 2, before, 8]), type=ir.TensorType(ir.DataType.FLOAT))
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    node = ir.node("Resize", [x], attributes)
    node.outputs[0].shape = ir.Shape([1, 2, after, 8])
    return ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}), ir_version=10)


@pytest.mark.parametrize(
    ("before", "after", "mode", "coordinates"),
    [
        (100, 200, "linear", "half_pixel"),
        (100, 25, "cubic", "half_pixel"),
        (100, 300, "nearest", "half_pixel"),
        (33, 65, "linear", "align_corners"),
        ("H", 300, "linear", "half_pixel"),
    ],
)
def test_exact_factors_allow_nothing_more(before, after, mode, coordinates) -> None:
    assert float32_tolerance(_resize(before, after, mode, coordinates)) is FLOAT32


@pytest.mark.parametrize(
    ("before", "after", "mode", "coordinates"),
    [
        (100, 300, "linear", "half_pixel"),
        (100, 140, "cubic", "half_pixel"),
        (100, 60, "linear", "asymmetric"),
        (100, 200, "linear", "align_corners"),
    ],
)
def test_fractions_allow_some_roundings_of_the_last_coordinate(before, after, mode, coordinates) -> None:
    """Measured between PyTorch and ONNX Runtime at 100 pixels: 2.3e-5 of the largest value."""
    tolerance = float32_tolerance(_resize(before, after, mode, coordinates))
    assert 3e-5 < (tolerance.relative or 0) < 5e-5
    assert "coordinates up to 100" in tolerance.reason


def test_an_output_that_is_declared_without_its_axes_allows_nothing_more() -> None:
    model = _resize(100, 300, "linear")
    model.graph.outputs[0].shape = ir.Shape([])
    assert float32_tolerance(model) is FLOAT32
