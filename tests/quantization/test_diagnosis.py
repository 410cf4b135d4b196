"""What the report can tell about a quantized tensor."""

from __future__ import annotations

from onnx import StringStringEntryProto

from tests.quantization.models import images, small_cnn

TRACE = (
    '  File "model.py", line 41, in forward\n    y = self.conv(x)\n'
    '  File "/x/site-packages/torch/nn/conv.py", line 9, in f\n'
)


def test_tensors_lead_to_the_users_line(quantized) -> None:
    model = small_cnn()
    for node in model.graph.node:
        if node.name == "pointwise":
            node.metadata_props.append(StringStringEntryProto(key="pkg.torch.onnx.stack_trace", value=TRACE))
    diagnosis = quantized(model, images(24), without_costs=True).stage.diagnosis
    places = {tensor["node"]: tensor["location"] for tensor in diagnosis["tensors"]}
    assert places["pointwise"] == "model.py:41, in forward"
    assert places["residual"] == ""
