"""What the size of the batch alone tells is stored, the same for every sample, where integers do not compute it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.quantization.prepare.of_sizes import values_of_sizes
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile

PLACES = "s = Shape(x) ones = Expand(one, s) "
CASES = {
    "added": PLACES + "p = CumSum(ones, second) y = Add(x, p)",
    "multiplied as matrices": PLACES + "p = CumSum(ones, second) t = Transpose<perm=[0,2,1]>(p) y = MatMul(x, t)",
    "joined, which needs the batch": PLACES + "p = CumSum(ones, second) y = Concat<axis=2>(x, p)",
    "a mask": PLACES + "p = CumSum(ones, second) m = Greater(p, two) y = Where(m, x, one)",
    "read twice": PLACES + "p = CumSum(ones, second) a = Add(x, p) y = Concat<axis=2>(a, p)",
    "another for each sample": PLACES + "p = CumSum(ones, first) y = Add(x, p)",
    "another for a large batch": PLACES
    + "b = Shape<start=0, end=1>(x) g = Greater(b, five) f = Cast<to=1>(g) m = Mul(ones, f) "
    + "p = CumSum(m, second) y = Add(x, p)",
    "moves alone": PLACES + "y = Add(x, ones)",
    "of the data": "p = CumSum(x, second) y = Add(x, p)",
}
LEFT = {
    "another for each sample": "CumSum",
    "another for a large batch": "CumSum",
    "moves alone": "Expand",
    "of the data": "CumSum",
}
STORED = {
    "one": np.float32(1),
    "two": np.float32(2),
    "first": np.array(0),
    "second": np.array(1),
    "five": np.array([5]),
}


def model(lines: str, sizes: str = "N,4,8") -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : 18]> g (float[{sizes}] x) => (float y) {{ {lines} }}'
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    used = {name for node in proto.graph.node for name in node.input}
    stored = [numpy_helper.from_array(np.asarray(each), name) for name, each in STORED.items() if name in used]
    proto.graph.initializer.extend(stored)
    return onnx.shape_inference.infer_shapes(proto, data_prop=True)


def rewritten(proto: onnx.ModelProto) -> onnx.ModelProto:
    found = ir.from_proto(proto)
    rules = profile(ExportOptions("m.onnx", precision="int8", full_integer=True))
    values_of_sizes(found, rules, {"x": np.ones((1, 4, 8), np.float32)}, {})
    return ir.to_proto(found)


@pytest.mark.parametrize("name", CASES)
def test_numbers_stay_at_every_batch(name: str) -> None:
    before = model(CASES[name])
    after = rewritten(before)
    kinds = Counter(node.op_type for node in after.graph.node)
    assert ("CumSum" in kinds) is (LEFT.get(name) == "CumSum")
    assert ("Expand" in kinds) is ((name in LEFT and name != "of the data") or "joined" in name or "twice" in name)
    for count in (1, 3, 8):
        x = np.random.default_rng(count).normal(size=(count, 4, 8)).astype(np.float32)
        (want,), (have,) = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (before, after))
        np.testing.assert_array_equal(have, want)


def test_two_dynamic_sizes_are_left() -> None:
    before = model(CASES["added"], "N,M,8")
    assert [node.op_type for node in rewritten(before).graph.node] == [node.op_type for node in before.graph.node]


def test_positions_of_a_dynamic_batch_are_integers(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = {"x": np.random.default_rng(0).normal(size=(24, 4, 8)).astype(np.float32)}
    choices = {"int8": True, "full_integer": True, "calib": data, "output": tmp_path / "out"}
    made = convertkit.export(model(CASES["added"]), "tflite", **choices)
    x = data["x"][:3]
    assert np.abs(made.run(x)["y"] - x - np.arange(1, 5)[:, None]).max() < 0.1
