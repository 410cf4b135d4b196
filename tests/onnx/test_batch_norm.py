"""A convolution with a batch normalisation in it computes what the two compute, in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

from convertkit.onnx.batch_norm import factor_and_offset, output_channels, scaled_and_shifted


def evaluated(nodes: list[Any], **values: np.ndarray) -> np.ndarray:
    inputs = [helper.make_tensor_value_info(name, 1, each.shape) for name, each in values.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {name: each.astype(np.float32) for name, each in values.items()})
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize(
    ("kind", "weight_shape", "group", "channels"),
    [
        ("Conv", (4, 3, 2, 3), 1, 4),
        ("Conv", (6, 1, 2, 3), 3, 6),
        ("ConvTranspose", (3, 4, 2, 3), 1, 4),
        ("ConvTranspose", (3, 2, 2, 3), 3, 6),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_folded_convolution(
    kind: str, weight_shape: tuple[int, ...], group: int, channels: int, *, biased: bool
) -> None:
    rng = np.random.default_rng(3)
    x, weight = rng.normal(0, 1, (2, 3, 5, 6)), rng.normal(0, 1, weight_shape)
    bias = rng.normal(0, 1, channels) if biased else None
    parameters = [rng.normal(0, 1, channels) for _ in range(3)] + [rng.uniform(0.1, 2.0, channels)]
    conv = ir.node(kind, [None], {"group": group})
    norm = ir.node("BatchNormalization", [None], {"epsilon": 0.03})
    assert output_channels(conv, weight) == channels

    factor, offset = factor_and_offset(norm, parameters)
    scaled, moved = scaled_and_shifted(conv, weight, bias, factor, offset)

    given = {"x": x, "w": weight, **dict(zip(("scale", "shift", "mean", "variance"), parameters, strict=True))}
    operands = ["x", "w"] + ([] if bias is None else ["bias"])
    if bias is not None:
        given["bias"] = bias
    expected = evaluated(
        [
            helper.make_node(kind, operands, ["c"], group=group),
            helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"], epsilon=0.03),
        ],
        **given,
    )
    found = evaluated([helper.make_node(kind, ["x", "w", "b"], ["y"], group=group)], x=x, w=scaled, b=moved)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # float32 sums in another order
