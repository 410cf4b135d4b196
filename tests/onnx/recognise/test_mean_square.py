"""Root-mean-square norms, whoever wrote them, and what is none."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser, shape_inference

from convertkit.onnx.recognise.mean_square import MeanSquare, normalised_by_mean_square

EPSILON = 1e-3
W = np.arange(1, 9, dtype="f4")
STORED = {
    "two": np.float32(2), "three": np.float32(3), "half": np.float32(0.5), "e": np.array([EPSILON], "f4"),
    "last": np.array([-1]), "first": np.array([1]), "both": np.array([1, 2]), "w": W, "rows": np.ones((4, 1), "f4"),
}  # fmt: skip
SQUARE = "s = Mul (x, x) m = ReduceMean <keepdims = 1> (s, last) v = Add (m, e) r = Sqrt (v)"
PLAIN = f"{SQUARE} i = Reciprocal (r) y = Mul (x, i)"


def last_of(nodes: str, inputs: str = "float[N,4,8] x") -> MeanSquare | None:
    """What the last node is; ``w`` grows, so that its order is told."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> g ({inputs}) => (y) {{ {nodes} }}')
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in STORED.items() if name in used)
    return normalised_by_mean_square(list(ir.from_proto(shape_inference.infer_shapes(proto)).graph)[-1])


ONES = np.ones(8, "f4")
FORMS = {
    "a reciprocal": (PLAIN, ONES),
    "a quotient": (f"{SQUARE} y = Div (x, r)", ONES),
    "a power": (PLAIN.replace("Mul (x, x)", "Pow (x, two)"), ONES),
    "a scale behind": (f"{PLAIN.replace('y =', 'n =')} y = Mul (n, w)", W),
    "a scale in front": (f"{PLAIN.replace('y =', 'n =')} y = Mul (w, n)", W),
    "two scales": (f"{PLAIN.replace('y =', 'n =')} o = Mul (w, n) y = Mul (half, o)", W / 2),
    "two axes": (PLAIN.replace("last)", "both)"), np.ones((4, 8), "f4")),
    "an operator": (f"y = RMSNormalization <epsilon = {EPSILON}> (x, w)", W),
    "an operator of two axes": (
        f"y = RMSNormalization <epsilon = {EPSILON}, axis = 1> (x, w)",
        np.tile(W, (4, 1)),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_norm(form: str) -> None:
    nodes, scale = FORMS[form]
    found = last_of(nodes)
    assert found is not None
    assert (found.x.name, np.float32(found.epsilon)) == ("x", np.float32(EPSILON))
    np.testing.assert_array_equal(found.scale, scale)


NONE = {
    "a mean of the third power": PLAIN.replace("Mul (x, x)", "Pow (x, three)"),
    "a mean along another axis": PLAIN.replace("last)", "first)"),
    "a mean of something else": f"z = Neg (x) {PLAIN.replace('Mul (x, x)', 'Mul (z, x)')}",
    "another value": f"z = Neg (x) {PLAIN.replace('Mul (x, i)', 'Mul (z, i)')}",
    "a scale of rows": f"{PLAIN.replace('y =', 'n =')} y = Mul (n, rows)",
    "the root alone": SQUARE.replace("r =", "y ="),
}


@pytest.mark.parametrize("form", NONE)
def test_what_is_none(form: str) -> None:
    assert last_of(NONE[form]) is None


def test_a_width_that_is_not_known_and_a_scale_that_is_given() -> None:
    assert last_of(PLAIN, "float[N,4,W] x") is None
    assert last_of("y = RMSNormalization (x, g)", "float[N,4,8] x, float[8] g") is None
