"""Zeros of a TFLite file, and sparse tensors: the sizes that are told are those of a file that LiteRT runs."""

from __future__ import annotations

import copy

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx import helper, numpy_helper

import convertkit
from convertkit.targets.tflite.zeros import zeros
from tests.onnx_models import model, write

SHAPES = {"a": (40, 300), "b": (300, 7), "c": (7, 3)}


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    """Three dense layers of which 80 % of the weights are zero; the last one is too small to gain."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("pruned")
    stored = [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), n) for n, shape in SHAPES.items()]
    nodes = [helper.make_node("MatMul", [x, n], [y]) for x, n, y in (("x", "a", "1"), ("r", "b", "2"), ("2", "c", "y"))]
    nodes.insert(1, helper.make_node("Relu", ["1"], ["r"]))
    path = write(folder, model(nodes, {"x": [1, 40]}, {"y": [1, 3]}, stored))
    return convertkit.export(path, target="tflite", prune=0.8, output=folder / "out")


def answer(content: bytes, x: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def written(made: schema.ModelT) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def narrow(values: np.ndarray) -> tuple[int, object]:
    kinds = ("Uint8Vector", np.uint8), ("Uint16Vector", np.uint16)
    name, dtype = kinds[int(values.max(initial=0) > 255)]
    vector = getattr(schema, f"{name}T")()
    vector.values = values.astype(dtype)
    return getattr(schema.SparseIndexVector, name), vector


def by_rows(array: np.ndarray) -> schema.SparsityParametersT:
    found = schema.SparsityParametersT()
    rows, columns = schema.DimensionMetadataT(), schema.DimensionMetadataT()
    rows.format, rows.denseSize = schema.DimensionType.DENSE, len(array)
    columns.format = schema.DimensionType.SPARSE_CSR
    segments = np.concatenate([[0], np.cumsum((array != 0).sum(axis=1))])
    columns.arraySegmentsType, columns.arraySegments = narrow(segments)
    columns.arrayIndicesType, columns.arrayIndices = narrow(np.nonzero(array)[1])
    found.traversalOrder, found.dimMetadata = [0, 1], [rows, columns]
    return found


def with_sparse_tensors(content: bytes, least: int) -> bytes:
    """Weights of at least so many elements by rows, each behind a DENSIFY."""
    made = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    graph, code = made.subgraphs[0], schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DENSIFY
    made.operatorCodes.append(code)
    steps = []
    for operator in graph.operators:
        tensor = graph.tensors[operator.inputs[1]]
        if np.prod(tensor.shape) < least:
            continue
        array = np.frombuffer(bytes(made.buffers[tensor.buffer].data), np.float32).reshape(tensor.shape)
        dense = copy.deepcopy(tensor)
        dense.buffer = 0
        graph.tensors.append(dense)
        tensor.sparsity = by_rows(array)
        made.buffers[tensor.buffer].data = np.frombuffer(array[array != 0].tobytes(), np.uint8)
        step = schema.OperatorT()
        step.opcodeIndex, step.inputs = len(made.operatorCodes) - 1, [operator.inputs[1]]
        step.outputs = [len(graph.tensors) - 1]
        operator.inputs = [operator.inputs[0], len(graph.tensors) - 1, *operator.inputs[2:]]
        steps.append(step)
    graph.operators = [*steps, *graph.operators]
    return written(made)


def test_sparse_tensors_take_what_is_told_and_answer_alike(pruned) -> None:
    content = pruned.artifact.path.read_bytes()
    found, made = zeros(pruned.artifact.path), with_sparse_tensors(content, 100)
    repacked = written(schema.ModelT.InitFromObj(schema.Model.GetRootAs(content)))
    assert found.weights == 40 * 300 + 300 * 7 + 7 * 3
    assert found.count / found.weights == pytest.approx(0.8, abs=0.001)
    saved = len(repacked) - len(made)
    assert len(content) - found.sparse_bytes == pytest.approx(saved, abs=200)
    x = np.random.default_rng(1).standard_normal((1, 40)).astype(np.float32)
    np.testing.assert_array_equal(answer(made, x), answer(content, x))


def test_the_report_has_all_three_sizes(pruned) -> None:
    sizes, found = pruned.report["sizes"], zeros(pruned.artifact.path)
    assert sizes["dense"] == pruned.artifact.size_bytes
    assert sizes["sparse"] == found.sparse_bytes < 0.5 * sizes["dense"]
    assert sizes["deflated"] < 0.5 * sizes["dense"]
    assert sizes["zeros"] == pytest.approx(0.8, abs=0.001)
    told = [note for note in pruned.report["notes"] if note.startswith(f"of {sizes['dense']:,} bytes")]
    assert len(told) == 1
    assert f"{sizes['sparse']:,} in sparse tensors, as 80.0% of the weights are zero" in told[0]
    assert "zeros take the time of other numbers" in told[0]


def test_a_sparse_source_is_told_and_a_dense_one_is_not(pruned, tmp_path) -> None:
    again = convertkit.export(pruned.artifact.path, target="tflite", output=tmp_path / "again")
    assert again.report["sizes"]["zeros"] == pytest.approx(0.8, abs=0.001)
    rng = np.random.default_rng(0)
    stored = [numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), "w")]
    dense = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 4]}, {"y": [1, 3]}, stored)
    assert convertkit.export(write(tmp_path, dense), target="tflite", output=tmp_path / "o").report["sizes"] is None


def test_integers_have_zeros_where_the_floats_had(pruned, tmp_path) -> None:
    samples = tmp_path / "calib.npz"
    np.savez(samples, x=np.random.default_rng(2).standard_normal((32, 1, 40)).astype(np.float32))
    made = convertkit.export(pruned.artifact.path, target="tflite", int8=True, calib=samples, output=tmp_path / "out")
    assert made.report["sizes"]["zeros"] >= 0.79
    assert made.report["sizes"]["sparse"] < made.report["sizes"]["dense"]
