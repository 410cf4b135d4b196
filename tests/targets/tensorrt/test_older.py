"""``--tensorrt-release 8.6``: what the file and its package are for a release whose networks have no types."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import convertkit
from convertkit.errors import Unsupported, UsageError
from convertkit.targets.tensorrt.parser import fault
from tests import onnx_models
from tests.targets.tensorrt.test_package import facts, script

OLDER = {"release": "8.6", "profile": ["N=1,8,32"]}


def exported(tmp_path: Path, proto: onnx.ModelProto, options: Mapping[str, object] = OLDER, **how: object) -> Path:
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    convertkit.export(source, "tensorrt", output=tmp_path / "out", target_options={"tensorrt": options}, **how)
    return tmp_path / "out"


def graph(body: str, opset: int = 20) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[N,8] x) => (float[N,M] y) {{ {body} }}'
    return onnx.parser.parse_model(text)


def test_the_file_is_what_tensorrt_8_reads(tmp_path: Path) -> None:
    package = exported(tmp_path, graph("a = Gelu (x) y, z = Split <axis = 1, num_outputs = 2> (a)"))
    model = onnx.load(package / "model.onnx")
    assert [each.version for each in model.opset_import] == [17]
    assert "Gelu" not in {node.op_type for node in model.graph.node}
    told = facts(package)
    assert told["tensorrt"]["at_least"] == "8.6"
    assert told["compute_capability"]["at_least"] == "6.0"
    assert "Needs TensorRT 8.6 or later" in (package / "README.md").read_text()
    assert "--stronglyTyped" not in (package / "trtexec.txt").read_text()


def test_the_page_says_what_becomes_int32(tmp_path: Path) -> None:
    table = onnx.numpy_helper.from_array(np.random.default_rng(2).standard_normal((6, 6)).astype(np.float32), "t")
    proto = onnx_models.model(
        [onnx.helper.make_node("Gather", ["t", "x"], ["y"])], {"x": ["N"]}, {"y": ["N", 6]}, [table]
    )
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    page = (exported(tmp_path, proto) / "README.md").read_text()
    assert "TensorRT 8 has no int64: in its engine x are int32." in page


def test_integers_are_asked_for_by_a_flag(tmp_path: Path) -> None:
    samples = np.random.default_rng(5).standard_normal((24, 5)).astype(np.float32)
    package = exported(tmp_path, onnx_models.mlp(), int8=True, full_integer=True, calib=samples)
    assert "--int8" in (package / "trtexec.txt").read_text()
    assert facts(package)["compute_capability"]["at_least"] == "6.1"
    assert facts(package)["model"]["precisions"] == ["float32", "int8"]


def test_trtexec_cannot_say_what_stays_float32(tmp_path: Path) -> None:
    package = exported(tmp_path, onnx_models.mlp(), fp16=True)
    assert facts(package)["compute_capability"]["at_least"] == "7.0"
    assert not (package / "trtexec.txt").exists()
    assert "trtexec.txt" not in (package / "README.md").read_text()


@pytest.mark.parametrize("operator", ["Hardmax", "Mish", "Gelu"])
def test_later_operators_are_written_out(tmp_path: Path, operator: str) -> None:
    """The first is older than opset 17, and the parser of TensorRT 8.6 does not have it."""
    model = onnx.load(exported(tmp_path, graph(f"y = {operator} (x)")) / "model.onnx")
    assert operator not in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("precision", ["bf16", "fp8", "w8", "w4"])
def test_other_types_are_refused(tmp_path: Path, precision: str) -> None:
    with pytest.raises(
        UsageError, match=f"--{precision} with --tensorrt-release 8.6: that release has float32, --fp16"
    ):
        exported(tmp_path, onnx_models.mlp(), **{precision: True}, calib=np.ones((2, 5), np.float32))
    assert not (tmp_path / "out").exists()


STFT = onnx_models.model(
    [onnx.helper.make_node("STFT", ["x", "step", "", "length"], ["y"], "spectrum")],
    {"x": [1, 32, 1]},
    {"y": [1, 7, 5, 2]},
    [onnx.numpy_helper.from_array(np.array(size), name) for name, size in (("step", 4), ("length", 8))],
)


def test_an_operator_that_it_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"the parser of TensorRT 8.6 has no STFT; that of 10.15 has it"):
        exported(tmp_path, STFT, {"release": "8.6"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "body", "says"),
    [
        ("float[1,2,5,5] x, float[3,2,3,3] k", "a = Relu (k) y = Conv (x, a)", "a kernel that is computed"),
        ("int32[3] x, int32[3] k", "y = Pow (x, k)", "x is a whole number: TensorRT 8.6 has powers of floats"),
        ("float[3] x, float[2,3,4] k", "y = MatMul (x, k)", "a vector times several matrices"),
        ("int8[3] x", "y = Neg (x)", "x is int8 outside of QuantizeLinear and DequantizeLinear"),
        ("float[2,3] x, float[3,4] k", "y = MatMul (x, k)", ""),
        ("float[3] x, float[3] k", "y = Pow (x, k)", ""),
    ],
)
def test_its_parser_takes_less(given: str, body: str, says: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 17]> g ({given}) => (float[N] y) {{ {body} }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    found = [fault(node, "8.6") for node in model.graph]
    assert says in found[-1] if says else not found[-1]
    assert not any(fault(node) for node in model.graph)


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A TensorRT 8.6 whose network has a float16 and a float32 layer, a stored one and one of integers."""
    fake = MagicMock(__version__="8.6.1", float32="float32", float16="float16")
    del fake.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    fake.NetworkDefinitionCreationFlag.EXPLICIT_BATCH = 0
    kinds = [("float16", "CONVOLUTION"), ("float32", "CONVOLUTION"), ("float32", "CONSTANT"), ("int32", "SHAPE")]
    for name in ("CONSTANT", "CAST"):
        setattr(fake.LayerType, name, name)
    layers = [MagicMock(num_outputs=1, type=kind, precision="unset") for _, kind in kinds]
    for layer, (dtype, _) in zip(layers, kinds, strict=True):
        layer.get_output.return_value.dtype = dtype
    network = fake.Builder.return_value.create_network.return_value
    network.num_inputs, network.num_layers = 0, len(layers)
    network.get_layer.side_effect = layers
    fake.layers = layers
    fake.Builder.return_value.build_serialized_network.return_value = b"engine"
    fake.Builder.return_value.create_builder_config.return_value.add_optimization_profile.return_value = 0
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    return fake


def built(package: Path, eight: MagicMock) -> list[object]:
    """The flags that the script sets."""
    assert script(package).main([]) == 0
    eight.Builder.return_value.create_network.assert_called_once_with(1)
    return [call.args[0] for call in eight.Builder.return_value.create_builder_config.return_value.set_flag.mock_calls]


def test_the_script_sets_the_graph_s_types(tmp_path: Path, eight: MagicMock) -> None:
    flags = built(exported(tmp_path, onnx_models.mlp(), fp16=True), eight)
    assert flags == [eight.BuilderFlag.FP16, eight.BuilderFlag.OBEY_PRECISION_CONSTRAINTS]
    assert [layer.precision for layer in eight.layers] == ["float16", "float32", "unset", "unset"]
    eight.layers[1].set_output_type.assert_called_once_with(0, "float32")
    assert not eight.layers[2].set_output_type.called


def test_the_script_lets_pairs_say_what_is_integer(tmp_path: Path, eight: MagicMock) -> None:
    samples = np.random.default_rng(5).standard_normal((24, 5)).astype(np.float32)
    package = exported(tmp_path, onnx_models.mlp(), int8=True, full_integer=True, calib=samples)
    assert built(package, eight) == [eight.BuilderFlag.INT8]


def test_the_script_says_that_tensorrt_does_not_start(
    tmp_path: Path, eight: MagicMock, capsys: pytest.CaptureFixture[str]
) -> None:
    eight.Builder.side_effect = TypeError("pybind11::init(): factory function returned nullptr")
    assert script(exported(tmp_path, onnx_models.mlp())).main([]) == 1
    assert "TensorRT does not start here" in capsys.readouterr().err


def test_the_report_has_the_package_s_own_script(tmp_path: Path) -> None:
    package = exported(tmp_path, onnx_models.mlp())
    assert "python build_engine.py\npython check_gpu.py" in (package / "report.html").read_text()
    (tmp_path / "open").mkdir()
    free = exported(tmp_path / "open", onnx_models.mlp(), {"release": "8.6"})
    assert "python build_engine.py --size N=MIN,OPT,MAX\n" in (free / "report.html").read_text()
    assert "stronglyTyped" not in (free / "report.html").read_text()
