"""The cost table of ONNX Runtime's kernels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.canonical import canonicalize
from convertkit.profile import WEIGHTED
from convertkit.quantization.graph.sizes import measure_sizes
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.precision_assignment import choose_integer
from convertkit.quantization.prepare.prepare import prepare
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import costs, profile


def test_whatever_has_weights_has_a_price() -> None:
    """Without one a multiply-add counts a nanosecond, a hundred times what it takes."""
    priced = costs()
    for kind in WEIGHTED:
        assert 0 < priced[kind].float32 < 0.1, kind


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_integers_around_a_float_convolution_pay(op: str) -> None:
    """A decoder's transposed convolution, which has no integer kernel, is a tenth of the time, not most of it."""
    rng, channels = np.random.default_rng(0), 32
    weights = {f"w{n}": rng.normal(0, 0.1, (channels, channels, 3, 3)).astype(np.float32) for n in range(4)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["b"], pads=[1] * 4),
        helper.make_node(op, ["b", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w3"], ["y"], pads=[1] * 4),
    ]
    shape = [1, channels, 28, 28]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], stored)
    model = canonicalize(
        ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    )
    prepare(model)
    measure_sizes(model, {"x": np.zeros(shape, np.float32)}, {})
    rules = profile(ExportOptions(source="", precision="int8"))
    chosen = choose_integer(find_units(model.graph, rules), rules, insist=False)
    assert len(chosen) == 3 + (op == "Conv")
