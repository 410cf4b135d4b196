"""IsInf and IsNaN of values that were widened before."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize


@pytest.mark.parametrize("question", ["IsInf", "IsInf<detect_negative=0>", "IsNaN"])
def test_the_value_itself_is_asked(question: str) -> None:
    """`torch.isinf` as PyTorch's exporter by tracing writes it, which TFLite refused ("float64 input")."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[6] x) => (bool[6] y) {{ wide = Cast<to=11>(x) y = {question}(wide) }}"""
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
    assert [node.op_type for node in model.graph] == [question.partition("<")[0]]
    x = np.array([0, np.inf, -np.inf, np.nan, 3e38, -1], np.float32)
    given = onnx.parser.parse_model(text)
    wanted, found = (ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (given, ir.to_proto(model)))
    np.testing.assert_array_equal(found, wanted)


def test_a_narrowed_value_stays_what_it_is() -> None:
    """1e300 is finite in float64 alone."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
        g (double[2] x) => (bool[2] y) { narrow = Cast<to=1>(x) y = IsInf(narrow) }"""
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
    assert [node.op_type for node in model.graph] == ["Cast", "IsInf"]
