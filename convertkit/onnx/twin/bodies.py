"""Operators that ONNX defines by others: the function body of the schema, with the node's own attributes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.function_bodies import body_of, defaults
from convertkit.onnx.twin.call import Call
from convertkit.onnx.twin.values import Tensor

BY_THEIR_BODY = frozenset({
    "AffineGrid", "Attention", "BlackmanWindow", "CastLike", "CausalConvWithState", "Celu", "CenterCropPad", "Elu",
    "Gelu", "GroupNormalization", "HammingWindow", "HannWindow", "HardSigmoid", "HardSwish",
    "LeakyRelu", "LinearAttention", "LogSoftmax", "Mish", "NegativeLogLikelihoodLoss",
    "PRelu", "RMSNormalization", "RotaryEmbedding", "Selu", "Shrink", "Softmax", "SoftmaxCrossEntropyLoss",
    "Softsign", "SwiGLU", "Swish", "ThresholdedRelu",
})  # fmt: skip
"""Operators whose body says best where they round: each of its steps does.

Not those whose body overflows or cancels where kernels do not (Softplus, ReduceLogSumExp), nor those that only move."""


class Bodies:
    """Bodies by node and the types and shapes of its operands."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Node, tuple[bytes, ...]], ir.Model | None] = {}

    def of(self, call: Call) -> ir.Model | None:
        """A model of the node with the node's operands as inputs; None where its operator has no body."""
        if call.node.domain or call.node.op_type not in BY_THEIR_BODY:
            return None
        types = tuple(_type(value if isinstance(value, Tensor) else None) for value in call.inputs)
        key = call.node, types
        if key not in self._known:
            self._known[key] = _written_out(call, _plain(call), types)
        return self._known[key]


def _plain(call: Call) -> onnx.NodeProto:
    node = ir.to_proto(call.node)
    assert isinstance(node, onnx.NodeProto)
    node.ClearField("metadata_props")
    node.name, node.doc_string = "", ""
    node.input[:] = [f"in{i}" if value is not None else "" for i, value in enumerate(call.inputs)]
    node.output[:] = [f"out{i}" if name else "" for i, name in enumerate(node.output)]
    return node


def _type(tensor: Tensor | None) -> bytes:
    proto = onnx.TypeProto()
    if tensor is not None:
        proto.tensor_type.elem_type = int(tensor.dtype)
        for size in tensor.array.shape:
            proto.tensor_type.shape.dim.add().dim_value = size
    return bytes(proto.SerializeToString())


def _written_out(call: Call, node: onnx.NodeProto, types: Sequence[bytes]) -> ir.Model | None:
    function = body_of(node, types, call.opset)
    if function is None:
        return None
    function.domain, function.overload = "body", ""
    _complete(call, node)
    node.domain = "body"
    inputs = [onnx.ValueInfoProto(name=name) for name in node.input if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "body", inputs, outputs)
    opsets = {opset.domain: opset.version for opset in function.opset_import} | {"body": 1}
    opsets.setdefault("", call.opset)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    proto = onnx.helper.make_model(graph, functions=[function], opset_imports=imports)
    model: ir.Model = ir.from_proto(proto)
    common.InlinePass()(model)
    return model


def _complete(call: Call, node: onnx.NodeProto) -> None:
    """Spell out the attributes that have their default."""
    known = {attribute.name for attribute in node.attribute}
    for name, attribute in defaults(node.op_type, call.opset).items():
        if name not in known:
            node.attribute.add().CopyFrom(attribute)
            node.attribute[-1].name = name
