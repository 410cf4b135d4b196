"""Writing: the bytes are protobuf's own, whatever their size, type and place."""

import hashlib

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model, serialized

LARGE = (130, 130)
rng = np.random.default_rng(4)


def model(*tensors):
    """A graph that returns its input and holds the tensors as initializers, with a name for each."""
    x = ir.Value(name="x", shape=ir.Shape([2]), type=ir.TensorType(ir.DataType.FLOAT))
    node = ir.node("Identity", [x])
    node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = "y", x.shape, x.type
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 18}, name="main", doc_string="what it is")
    for index, tensor in enumerate(tensors):
        tensor.name = f"w{index}"
        graph.register_initializer(
            ir.Value(name=tensor.name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        )
    made = ir.Model(graph, ir_version=10, producer_name="someone")
    made.metadata_props["key"] = "value"
    return made


TENSORS = [
    ir.tensor(rng.standard_normal(LARGE).astype(np.float32)),
    ir.tensor(rng.standard_normal(LARGE).astype(np.float32).T),
    ir.tensor(rng.standard_normal(LARGE[::-1]).astype(ml_dtypes.bfloat16).repeat(2)),
    ir.tensor(rng.integers(0, 9, LARGE[0])),
    ir.Tensor(rng.integers(-8, 8, 200_000).astype(ml_dtypes.int4), dtype=ir.DataType.INT4),
    ir.tensor(["a" * 70_000, "b"]),
    ir.Tensor(rng.standard_normal(LARGE), doc_string="said of it"),
]


@pytest.mark.parametrize("tensors", [(), *((tensor,) for tensor in TENSORS), tuple(TENSORS)])
def test_bytes_are_those_of_protobuf(tensors, tmp_path):
    made = model(*tensors)
    artifact = save_model(made, tmp_path / "m.onnx", "test 1")
    data = artifact.path.read_bytes()
    assert data == ir.to_proto(made).SerializeToString(deterministic=True)
    assert artifact.sha256 == hashlib.sha256(data).hexdigest()


def test_weights_above_what_protobuf_holds_count(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.onnx.save.EXTERNAL_ABOVE_BYTES", 1000)
    artifact = save_model(model(TENSORS[-1]), tmp_path / "m.onnx", "test 1")
    data = (tmp_path / "m.onnx.data").stat().st_size
    assert artifact.size_bytes == artifact.path.stat().st_size + data > 130 * 130 * 4


def test_external_weights_are_taken_in(tmp_path):
    whole = model(TENSORS[0], TENSORS[3])
    want = b"".join(serialized(whole))
    ir.save(whole, tmp_path / "m.onnx", external_data="m.data")
    assert b"".join(serialized(load_model(tmp_path / "m.onnx"))) == want
