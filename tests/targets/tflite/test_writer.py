"""The file itself: bytes, alignment, sharing, versions, data beyond the FlatBuffer."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx import numpy_helper, parser

from convertkit.targets.tflite import writer
from convertkit.targets.tflite.origins import origins_of
from tests.targets.tflite.compiled import compiled, numbers
from tests.targets.tflite.test_quantized import Qdq


def two_layers():
    """Two matrix products with the same weights, and names that must survive."""
    text = """<ir_version: 8, opset_import: ["" : 21]> g (float[N,32] first, float[N,32] second)
        => (float[N,32] out_b, float[N,32] out_a) {
            out_b = MatMul(second, w)
            hidden = MatMul(first, v)
            out_a = Relu(hidden) }"""
    proto = parser.parse_model(text)
    for name in "wv":
        proto.graph.initializer.append(numpy_helper.from_array(numbers(32, 32, seed=1), name))
    return compiled(proto)


def written(tmp_path, name="model.tflite"):
    path = tmp_path / name
    two_layers().compiled.write(path)
    return path


def test_bytes_repeat(tmp_path):
    assert written(tmp_path).read_bytes() == written(tmp_path, "again.tflite").read_bytes()


def test_constants_are_aligned_and_stored_once(tmp_path):
    data = written(tmp_path).read_bytes()
    model = schema.Model.GetRootAs(data, 0)
    sizes = []
    for place in range(model.BuffersLength()):
        array = model.Buffers(place).DataAsNumpy()
        if isinstance(array, np.ndarray) and array.size:
            assert (array.ctypes.data - np.frombuffer(data, np.uint8).ctypes.data) % writer.ALIGNMENT == 0
            sizes.append(array.size)
    assert sizes.count(32 * 32 * 4) == 1


def test_scales_and_zero_points_are_stored_once(tmp_path):
    q = Qdq()
    x = q.quantized("x")
    for seed in (1, 2):
        w, scales = q.weight(4, 4, 1, 1, seed=seed)
        x = q.quantized(q.node("Conv", x, w, q.bias(scales)))
    q.case(x, (1, 4, 3, 5)).compiled.write(tmp_path / "model.tflite")
    data = (tmp_path / "model.tflite").read_bytes()
    graph = schema.Model.GetRootAs(data, 0).Subgraphs(0)
    found = [graph.Tensors(place).Quantization() for place in range(graph.TensorsLength())]
    weights = [each for each in found if each is not None and each.ScaleLength() == 4]
    activations = [each for each in found if each is not None and each.ScaleLength() == 1]
    assert (len(weights), len(activations)) == (4, 3)  # two layers' weights and biases; the input and their results
    assert len({each.ZeroPointAsNumpy().ctypes.data for each in weights}) == 1
    assert len({each.ScaleAsNumpy().ctypes.data for each in weights}) == 2  # of the weights, and of the biases
    assert len({each._tab.Pos for each in activations}) == 1
    assert [each.ZeroPoint(0) for each in activations] == [3, 3, 3]


def test_names_order_and_signature(tmp_path):
    runner = Interpreter(model_path=str(written(tmp_path)))
    assert [detail["name"] for detail in runner.get_input_details()] == ["first", "second"]
    assert [detail["name"] for detail in runner.get_output_details()] == ["out_b", "out_a"]
    (signature,) = runner.get_signature_list().values()
    assert set(signature["inputs"]) == {"first", "second"}  # LiteRT sorts them
    assert set(signature["outputs"]) == {"out_b", "out_a"}
    assert list(runner.get_input_details()[0]["shape_signature"]) == [-1, 32]


def test_metadata_says_where_tensors_come_from_and_what_runtime_is_needed(tmp_path):
    model = schema.ModelT.InitFromPackedBuf(written(tmp_path).read_bytes(), 0)
    notes = {note.name.decode(): bytes(model.buffers[note.buffer].data) for note in model.metadata}
    assert notes["min_runtime_version"].rstrip(b"\0") == b"2.1.0"  # FULLY_CONNECTED without bias
    assert set(origins_of(model, "convertkit")) == {"out_a", "out_b"}


def test_a_note_of_operators_that_another_tool_has_changed_tells_nothing(tmp_path):
    model = schema.ModelT.InitFromPackedBuf(written(tmp_path).read_bytes(), 0)
    model.subgraphs[0].operators.pop()
    assert origins_of(model, "convertkit") == {}


@pytest.mark.parametrize("limit", [0, writer.INSIDE_LIMIT_BYTES])
def test_data_beyond_the_flatbuffer_gives_the_same_numbers(monkeypatch, limit):
    monkeypatch.setattr(writer, "INSIDE_LIMIT_BYTES", limit)
    two_layers().agree({"first": numbers(3, 32), "second": numbers(3, 32, seed=5)})


def test_int4_is_packed_two_to_a_byte():
    import ml_dtypes

    packed = writer.packed(np.array([1, -2, 7], ml_dtypes.int4))
    assert packed.tolist() == [0xE1, 0x07]


def test_equal_shapes_and_lists_are_stored_once(tmp_path):
    graph = schema.Model.GetRootAs(written(tmp_path).read_bytes(), 0).Subgraphs(0)
    tensors = [graph.Tensors(place) for place in range(graph.TensorsLength())]
    shapes = {}
    for each in tensors:
        shapes.setdefault(tuple(each.ShapeAsNumpy()), set()).add(each.ShapeAsNumpy().ctypes.data)
    assert len(tensors) > len(shapes)
    assert all(len(places) == 1 for places in shapes.values())
