"""Types that an operator of ONNX Runtime does not take, and what computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from convertkit.converters.tensorflow.narrow import widen_narrow_integers


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "float32"])
def test_places_of_any_type(dtype):
    """ONNX Runtime's NonZero takes none of the first three; the least float64 is a place, not a number is one, too."""
    name = {"float64": "double", "float32": "float"}.get(dtype, dtype)
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({name}[6] x) => (int64[1,K] y) {{ y = NonZero (x) }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    widen_narrow_integers(model)
    given = np.array([0, 1, -3, 0, 7, 0], dtype)
    if dtype == "float64":
        given[[0, 3]] = 1e-300, np.nan
    (found,) = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, {"x": given})
    assert found.tolist() == [np.flatnonzero(given).tolist()]
    assert (len(list(model.graph)) == 1) == (dtype == "float32")
