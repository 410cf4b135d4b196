"""From a tensor of the file back to the ONNX node and the line of the user's model, whatever passes did between."""

from __future__ import annotations

import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import numpy_helper, parser

from convertkit.errors import Unsupported
from convertkit.targets.tflite.compile import METADATA
from convertkit.targets.tflite.origins import origins_of
from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 8, opset_import: ["" : 20]>'
MODELS = {
    "convolutions in the source's layout inside a channels-last model": """g (float[1,3,8,8] x) => (float[1,3,8,4] y) {
        c = Conv<pads=[1,1,1,1]>(x, w)
        r = Relu(c)
        y = MatMul(r, k) }""",
    "gelu as exporters write it": """g (float[1,3,8,8] x) => (float[1,3,8,8] y) {
        s = Mul(x, root)
        e = Erf(s)
        p = Add(e, one)
        h = Mul(p, half)
        y = Mul(x, h) }""",
    "an operator that is expanded": """g (float[1,3,8,8] x) => (float[1,3,8,8] y) {
        m = MeanVarianceNormalization(x)
        y = Celu<alpha=0.5>(m) }""",
    "steps of a recurrent layer": """g (float[5,1,3] x) => (float[5,1,1,4] y) {
        y, last = GRU<hidden_size=4>(x, gates, again) }""",
    "a branch": """g (float[1,3,8,8] x, bool flag) => (float[1,3,8,8] y) {
        r = Exp(x)
        y = If(flag)<then_branch = g1 () => (float[1,3,8,8] a) { a = Tanh(r) },
                     else_branch = g2 () => (float[1,3,8,8] b) { b = Sigmoid(r) }> }""",
}
WEIGHTS = {
    "w": numbers(3, 3, 3, 3), "k": numbers(8, 4), "root": numbers() * 0 + 0.5**0.5, "one": numbers() * 0 + 1,
    "half": numbers() * 0 + 0.5, "gates": numbers(1, 12, 3), "again": numbers(1, 12, 4),
}  # fmt: skip


def named(graph: onnx.GraphProto) -> list[str]:
    """Give every node a name and a line of its own; returns the names."""
    names = []
    for node in graph.node:
        node.name = f"the_{node.op_type.lower()}_{node.output[0]}"
        names.append(node.name)
        trace = f'File "net.py", line {len(names)}, in forward'
        node.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.stack_trace", value=trace))
        for attribute in node.attribute:
            names += named(attribute.g)
    return names


@pytest.mark.parametrize("title", MODELS)
def test_every_tensor_leads_to_a_node_and_a_line(title, tmp_path):
    proto = parser.parse_model(f"{HEAD} {MODELS[title]}")
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(
        numpy_helper.from_array(value.astype("float32"), name) for name, value in WEIGHTS.items() if name in used
    )
    nodes = named(proto.graph)
    compiled(proto).compiled.write(tmp_path / "model.tflite")
    model = schema.ModelT.InitFromPackedBuf((tmp_path / "model.tflite").read_bytes(), 0)
    origins = origins_of(model, METADATA)
    assert any("(net.py:" in origin for origin in origins.values())
    for graph in model.subgraphs:
        for operator in graph.operators:
            for place in operator.outputs:
                name = graph.tensors[place].name.decode()
                node, _, line = origins.get(name, name.partition("/")[0]).partition(" (")
                assert node in nodes, name
                assert not line or line.startswith("net.py:"), name


def test_a_refusal_shows_the_line():
    proto = parser.parse_model(f"{HEAD} g (float[4] x) => (float[4] y) {{ r = Relu(x) y = com.acme.Unknown(r) }}")
    proto.opset_import.append(onnx.helper.make_opsetid("com.acme", 1))
    named(proto.graph)
    with pytest.raises(Unsupported, match="the_unknown_y") as caught:
        compiled(proto)
    assert caught.value.location == "net.py:2, in forward"
