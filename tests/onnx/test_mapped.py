"""Large weights are read where they lie in the file, and are the same weights."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.errors import SourceError
from convertkit.onnx.load import external_files, load_model
from convertkit.onnx.mapped import read_proto
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.prepare import opset

_RNG = np.random.default_rng(0)
_WEIGHTS = {
    "large": _RNG.standard_normal((1024, 1024)).astype(np.float32),
    "small": _RNG.standard_normal(1024).astype(np.float32),
    "half": _RNG.standard_normal((1024, 1024)).astype(np.float16),
    "four": _RNG.integers(-8, 8, (2048, 1023)).astype(ml_dtypes.int4),
    "last": _RNG.standard_normal((1024, 512)).astype(np.float32),
}


def _written(path: Path) -> Path:
    tensors = [ir.to_proto(ir.Tensor(array, name=name)) for name, array in _WEIGHTS.items()]
    tensors[0].doc_string = "told"
    tensors.insert(1, helper.make_tensor("typed", TensorProto.FLOAT, [65536], np.arange(65536, dtype=np.float32)))
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["m"]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(_WEIGHTS["small"])),
        helper.make_node("Add", ["m", "c"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1024]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], tensors), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("mapped") / "m.onnx")


def test_large_weights_stay_in_the_file(written: Path) -> None:
    stayed = [t.name for t in read_proto(written).graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert stayed == ["large", "half", "last"]


def test_the_model_is_the_same(written: Path) -> None:
    mapped, plain = load_model(written), ir.from_proto(onnx.load_model(written))
    assert list(mapped.graph.initializers) == list(plain.graph.initializers)
    for name, value in plain.graph.initializers.items():
        found = mapped.graph.initializers[name].const_value
        assert found is not None
        assert value.const_value is not None
        assert found.dtype == value.const_value.dtype
        np.testing.assert_array_equal(found.numpy(), value.const_value.numpy())
    assert ir.to_proto(mapped).SerializeToString(deterministic=True) == ir.to_proto(plain).SerializeToString(
        deterministic=True
    )


def test_the_rest_is_parsed_as_it_is(written: Path) -> None:
    left, right = read_proto(written), onnx.load_model(written)
    del left.graph.initializer[:]
    del right.graph.initializer[:]
    assert left.SerializeToString(deterministic=True) == right.SerializeToString(deterministic=True)


@pytest.mark.parametrize("least", [1, 1 << 30])
def test_the_model_runs_and_changes_its_opset_in_memory(
    written: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """With weights left to the converter, and without."""
    monkeypatch.setattr(opset, "_LARGE_BYTES", least)
    x = np.ones((2, 1024), np.float32)
    expected = x @ _WEIGHTS["large"] + _WEIGHTS["small"]
    newer = opset.at_least(load_model(written), 21)
    assert sorted(newer.graph.initializers) == sorted(load_model(written).graph.initializers)
    for model in (load_model(written), newer):
        (answer,) = run_all(open_session(model), ["y"], [{"x": x}], {})
        np.testing.assert_allclose(answer["y"], expected, rtol=1e-4, atol=1e-4)  # sums of 1024 float32 products


def test_the_file_is_not_beside_itself(written: Path) -> None:
    assert external_files(written) == ()


def test_behind_a_link_of_another_name(written: Path, tmp_path: Path) -> None:
    link = tmp_path / "other.onnx"
    link.symlink_to(written)
    found = load_model(link).graph.initializers["large"].const_value
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), _WEIGHTS["large"])


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.9999])
def test_a_truncated_file_is_refused(written: Path, tmp_path: Path, kept: float) -> None:
    data = written.read_bytes()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(SourceError, match="truncated"):
        load_model(path)


def test_a_weight_that_holds_less_than_it_declares_is_refused(written: Path, tmp_path: Path) -> None:
    proto = onnx.load_model(written)
    proto.graph.initializer[0].dims[0] = 1025
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(SourceError, match="large"):
        load_model(tmp_path / "m.onnx")
