"""Sparse initializers and constants are read as dense ones, in bodies and functions too."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.errors import ConvertKitError, Unsupported
from convertkit.onnx.load import load_model

WEIGHT = np.zeros((4, 5), np.float32)
WEIGHT[[0, 1, 3], [4, 2, 0]] = [1.5, 3, -2]


def sparse(*, flat: bool, dims: tuple[int, ...] = (4, 5)) -> onnx.SparseTensorProto:
    indices = np.flatnonzero(WEIGHT) if flat else np.argwhere(WEIGHT)
    values = numpy_helper.from_array(WEIGHT[WEIGHT != 0], "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices.astype(np.int64), "wi"), dims)


def saved(path: Path, form: str, tensor: onnx.SparseTensorProto, opset: int = 20) -> Path:
    constant = helper.make_node("Constant", [], ["w"], sparse_value=tensor)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    nodes, functions = [product], []
    if form == "constant":
        nodes = [constant, product]
    if form == "function":
        functions = [helper.make_function("mine", "Dense", ["x"], ["y"], [constant, product], opsets[:1])]
        nodes = [helper.make_node("Dense", ["x"], ["y"], domain="mine")]
    if form == "body":
        inner = helper.make_graph([constant, product], "b", [], results)
        flag = numpy_helper.from_array(np.array(True), "flag")
        nodes = [
            helper.make_node("Constant", [], ["flag"], value=flag),
            helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner),
        ]
    graph = helper.make_graph(nodes, "g", infos, results)
    if form == "initializer":
        graph.sparse_initializer.append(tensor)
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9), path)
    return path


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("form", ["initializer", "constant", "function", "body"])
def test_it_is_the_dense_tensor(form: str, flat: bool, tmp_path: Path):
    model = load_model(saved(tmp_path / "m.onnx", form, sparse(flat=flat)))
    stored = [value.const_value for graph in (model.graph, *model.graph.subgraphs())
              for value in graph.initializers.values()]  # fmt: skip
    nodes = [node for graph in (model.graph, *model.functions.values()) for node in graph.all_nodes()]
    stored += [node.attributes["value"].as_tensor() for node in nodes if node.op_type == "Constant"]
    assert any(tensor.shape == WEIGHT.shape and np.array_equal(tensor.numpy(), WEIGHT) for tensor in stored)


@pytest.mark.parametrize("opset", [11, 17])
def test_an_older_model_is_converted(opset: int, tmp_path: Path):
    import convertkit

    result = convertkit.export(
        saved(tmp_path / "m.onnx", "initializer", sparse(flat=True), opset), "tflite", output=tmp_path / "out"
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(result.run({"x": x})["y"], x @ WEIGHT)


def test_an_absurd_size_is_refused(tmp_path: Path):
    with pytest.raises(Unsupported, match="more than 2 GiB"):
        load_model(saved(tmp_path / "m.onnx", "constant", sparse(flat=True, dims=(1 << 20, 1 << 19))))


def test_places_outside_are_refused(tmp_path: Path):
    with pytest.raises(ConvertKitError):
        load_model(saved(tmp_path / "m.onnx", "initializer", sparse(flat=True, dims=(2, 5))))
