"""Gather and GatherND with results of many dimensions, in front of reshapes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.coreml.builder import MOST_DIMENSIONS
from convertkit.targets.coreml.picks import lower_picks

PICKS = {
    "GatherND": ("GatherND(x, i)", (2, 3, 4, 5), (2, 3, 2, 1), (12, 60)),
    "two axes": ("GatherND(x, i)", (2, 3, 4, 5), (2, 1, 2, 2, 2), (8, 20)),
    "a batch": ("GatherND<batch_dims=1>(x, i)", (2, 3, 4), (2, 3, 2, 2, 1, 1), (2, 3, 2, 2, 4)),
    "Gather": ("Gather<axis=1>(x, i)", (3, 2, 4, 5), (2, 2, 3), (36, 20)),
    "places of six axes": ("Gather<axis=0>(x, i)", (2, 3), (1, 2, 1, 2, 3, 2), (24, 3)),
}


def model_of(pick, x, i, y, places):
    sizes = [",".join(map(str, shape)) for shape in (x, i, y)]
    given, stored = (f", int64[{sizes[1]}] i", []) if places is None else ("", [numpy_helper.from_array(places, "i")])
    body = f"test (float[{sizes[0]}] x{given}) => (float[{sizes[2]}] y) {{ g = {pick} y = Reshape(g, s) }}"
    made = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{body}')
    made.graph.initializer.extend([*stored, numpy_helper.from_array(np.array(y, np.int64), "s")])
    return made


@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
@pytest.mark.parametrize("case", PICKS)
def test_the_places_become_one_axis(case, known):
    pick, x, i, y = PICKS[case]
    rng = np.random.default_rng(5)
    places = rng.integers(-2, 2, i)
    given = model_of(pick, x, i, y, places if known else None)
    model = canonicalize(ir.from_proto(given))
    before = [len(value.shape) for node in model.graph for value in node.outputs]
    assert max(before) > MOST_DIMENSIONS
    lower_picks(model)
    assert all(len(value.shape) <= MOST_DIMENSIONS for node in model.graph for value in node.outputs)
    found = ir.to_proto(model)
    onnx.checker.check_model(found, full_check=True)
    feed = {"x": rng.standard_normal(x).astype(np.float32)} | ({} if known else {"i": places})
    wanted, got = (ReferenceEvaluator(each).run(None, feed)[0] for each in (given, found))
    assert np.array_equal(got, wanted)


def test_a_result_that_is_read_as_it_is_stays():
    pick, x, i, y = PICKS["GatherND"]
    made = model_of(pick, x, i, y, np.zeros(i, np.int64))
    del made.graph.node[1], made.graph.initializer[1]
    made.graph.node[0].output[0] = "y"
    for size in (2, 3, 2, 3, 4, 5):
        made.graph.output[0].type.tensor_type.shape.dim.add(dim_value=size)
    del made.graph.output[0].type.tensor_type.shape.dim[:2]
    model = canonicalize(ir.from_proto(made))
    lower_picks(model)
    (node,) = model.graph
    assert len(node.outputs[0].shape) == 6
