"""Of several updates of one place the last one stays, as in ONNX Runtime; SCATTER_ND would add them."""

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled, numbers

TEXT = '<ir_version: 9, opset_import: ["" : 18]>\ng ({inputs}) => ({kind}[{shape}] y) {stored} {{ y = {op}(x, at, u) }}'
ELEMENTS = np.array([[0, 2, 2, 1], [2, 2, 2, 2], [0, 0, -3, -1]])
ROWS = np.array([[3], [0], [3], [-1]])


def feed(indices, *shape, kind="float"):
    x, u = numbers(*shape[:2], seed=1), numbers(*shape[2:], seed=2)
    if kind != "float":
        x, u = (np.rint(9 * each).astype({"int64": np.int64, "bool": bool}[kind]) for each in (x, u))
    return {"x": x, "at": indices, "u": u}


@pytest.mark.parametrize("kind", ["float", "int64", "bool"])
def test_elements(kind):
    inputs = f"{kind}[3,4] x, int64[3,4] at, {kind}[3,4] u"
    case = compiled(TEXT.format(inputs=inputs, kind=kind, shape="3,4", stored="", op="ScatterElements<axis=0>"))
    case.agree(feed(ELEMENTS, 3, 4, 3, 4, kind=kind), feed(ELEMENTS[::-1].copy(), 3, 4, 3, 4, kind=kind))


def test_rows_of_free_sizes():
    case = compiled(
        TEXT.format(inputs="float[n,5] x, int64[k,1] at, float[k,5] u", kind="float", shape="n,5", stored="",
                    op="ScatterND")
    )  # fmt: skip
    empty = {"x": numbers(4, 5), "at": np.zeros((0, 1), np.int64), "u": np.zeros((0, 5), np.float32)}
    case.agree(feed(ROWS, 4, 5, 4, 5), feed(ROWS[:2], 6, 5, 2, 5), empty)


@pytest.mark.parametrize("values", ["{1.5, 2.5, 3.5, 4.5}", "{7, 7, 7, 7}"])
def test_constant_places_need_no_search(values):
    stored = f"<int64[4,1] at = {{3, 0, 3, -1}}, float[4] u = {values}>"
    case = compiled(TEXT.format(inputs="float[5] x", kind="float", shape="5", stored=stored, op="ScatterND"))
    assert case.operators == {"CONCATENATION": 1, "GATHER": 1}
    case.agree({"x": numbers(5)})
