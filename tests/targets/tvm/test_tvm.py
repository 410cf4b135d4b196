"""Libraries of TVM: what they compute, the same bytes, who links them; without the engine one sentence."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit import plugins
from convertkit.artifact import Artifact, sha256_of
from convertkit.engines import environments
from convertkit.errors import FeedError, MissingEngine, ParityError, ToolError, Unsupported
from convertkit.onnx.load import load_own
from convertkit.result import Result
from convertkit.targets.tvm import platforms
from convertkit.targets.tvm.engine import engine
from convertkit.targets.tvm.forms import write_forms
from convertkit.targets.tvm.runner import TvmRunner
from convertkit.targets.tvm.stage import _demand
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION = "fixtures/digits/model.pt", "fixtures/digits/calib.npz"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine is installed."""
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "engines"))


def test_without_the_engine_one_sentence_says_what_to_install(without, tmp_path):
    said = here("export", NETWORK, "--target", "tvm", "-o", tmp_path / "out")
    check_refusal(said, 4, "the engine tvm is not installed and this needs it; run: convertkit engines install tvm")
    assert not any(tmp_path.iterdir())


def test_a_library_is_not_run_without_the_engine(without, tmp_path):
    artifact = Artifact(tmp_path / "model.so", "tvm", (), (), "")
    with pytest.raises(MissingEngine):
        plugins.runner(artifact).__enter__()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--tvm-cpu", "native"), "the same command writes the same file on every machine"),
        (("--tvm-also", "windows"), "linux-arm64"),
        (("--int8", "--calib", CALIBRATION), "target tvm does not deliver int8; it has: float32"),
    ],
)
def test_what_does_not_fit_ends_it_before_any_work(without, tmp_path, flags, said):
    check_refusal(here("export", NETWORK, "--target", "tvm", *flags, "-o", tmp_path / "out"), 2, said)
    assert not any(tmp_path.iterdir())


def test_integers_have_their_reason():
    with pytest.raises(Unsupported, match="TVM computes a quantized graph in float"):
        plugins.target("tvm").profile(None)


def test_a_refusal_names_the_first_node_of_the_kind_that_the_importer_does():
    kinds = ("Relu", "Odd", "Odd")
    graph = ir.Graph([], [], nodes=[ir.Node("", kind, [], name=f"n{at}") for at, kind in enumerate(kinds)])
    model = ir.Model(graph, ir_version=10)
    with pytest.raises(Unsupported, match=r"^n1 \(Odd\): TVM does not compile it: not supported"):
        _demand(model, {"operator": "Odd", "reason": "not supported"})
    with pytest.raises(ToolError, match=r"^TVM does not compile the model: out of registers"):
        _demand(model, {"operator": None, "reason": "out of registers"})
    _demand(model, None)


@pytest.mark.parametrize(
    ("machine", "there", "name", "found"),
    [
        ("x86_64", {"g++"}, "linux-x86_64", "g++"),
        ("x86_64", {"clang++"}, "linux-x86_64", "clang++"),
        ("x86_64", {"g++", "aarch64-linux-gnu-g++"}, "linux-arm64", "aarch64-linux-gnu-g++"),
        ("aarch64", {"c++"}, "linux-arm64", "c++"),
        ("x86_64", {"g++"}, "linux-arm64", None),
        ("aarch64", {"g++"}, "linux-x86_64", None),
    ],
)
def test_the_linker_is_the_platforms_own(monkeypatch, machine, there, name, found):
    monkeypatch.setattr(platforms.platform, "machine", lambda: machine)
    monkeypatch.setattr(platforms.shutil, "which", lambda program: program if program in there else None)
    if found:
        assert platforms.linker(name) == found
        return
    with pytest.raises(ToolError, match=rf"needs a C\+\+ compiler to link for {name}; none of these is on PATH"):
        platforms.linker(name)


def test_another_processor_is_refused(monkeypatch):
    monkeypatch.setattr(platforms.platform, "machine", lambda: "riscv64")
    with pytest.raises(ToolError, match="this machine is riscv64"):
        platforms.here()


@pytest.fixture(scope="module")
def installed() -> None:
    """Skips where the engine is not installed."""
    if environments.installed(engine) is None:
        pytest.skip("the engine tvm is not installed: convertkit engines install tvm")


@pytest.fixture(scope="module")
def made(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return convertkit.export(NETWORK, "tvm", output=tmp_path_factory.mktemp("tvm") / "out")


def test_the_library_computes_what_the_graph_says(made):
    (output,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5
    assert made.report["runs_here"]
    assert "TVM 0." in made.report["steps"][-1]["artifact"]["runtime"]
    assert f"| `model.so` | linux-{platform.machine()} | executed" in (made.path / "README.md").read_text()
    with TvmRunner(made.artifact) as runner, pytest.raises(FeedError, match="the library"):
        runner.run({"input": np.zeros((2, 1, 8, 8), np.float32)})


@pytest.mark.nightly
def test_two_folders_hold_the_same_bytes(made, tmp_path):
    again = convertkit.export(NETWORK, "tvm", output=tmp_path / "a-much-longer-name")
    assert sha256_of(again.artifact.path) == sha256_of(made.artifact.path)


@pytest.mark.nightly
def test_a_quantized_model_keeps_its_numbers(installed, tmp_path):
    """Of every product and sum in integers the same result as ONNX Runtime's without optimizations."""
    rng = np.random.default_rng(0)
    stored = {
        "s": np.float32(0.05), "z": np.int8(3), "ws": rng.uniform(0.01, 0.02, 5).astype(np.float32),
        "wz": np.zeros(5, np.int8), "w": rng.integers(-127, 128, (7, 5)).astype(np.int8), "t": np.float32(0.4),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "d"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], "v", axis=1),
        helper.make_node("MatMul", ["d", "v"], ["m"], "m"),
        helper.make_node("QuantizeLinear", ["m", "t", "z"], ["p"], "p"),
        helper.make_node("DequantizeLinear", ["p", "t", "z"], ["y"], "y"),
    ]
    shapes = {"x": [3, 7], "y": [3, 5]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    exported = convertkit.export(tmp_path / "m.onnx", "tvm", output=tmp_path / "out")
    x = rng.normal(0, 2, (3, 7)).astype(np.float32)
    given = (np.clip(np.round(x / stored["s"]) + 3, -128, 127) - 3) * stored["s"]
    wanted = given @ (stored["w"] * stored["ws"])
    wanted = (np.clip(np.round(wanted / stored["t"]) + 3, -128, 127) - 3) * stored["t"]
    assert np.allclose(exported.run({"x": x})["y"], wanted, atol=1e-5)


def test_a_node_that_it_does_not_import_is_named(installed, tmp_path):
    shapes = {"x": [2, 3, 3], "y": [2]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    nodes = [helper.make_node("Relu", ["x"], ["h"], "plain"), helper.make_node("Det", ["h"], ["y"], "odd")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    said = here("export", tmp_path / "m.onnx", "--target", "tvm", "-o", tmp_path / "out")
    assert said.code == 1
    assert "odd (Det): TVM does not compile it" in said.complaint
    assert not (tmp_path / "out").exists()


def test_what_is_not_a_library_is_refused(made, tmp_path):
    path = tmp_path / "model.so"
    for data, says in (
        (b"not one", "is not a whole library of TVM"),
        (made.artifact.path.read_bytes()[:2000], "is not a whole library of TVM"),
    ):
        path.write_bytes(data)
        with pytest.raises(ToolError, match=says):
            TvmRunner(Artifact(path, "tvm", (), (), "")).__enter__()


def test_wrong_numbers_of_a_library_are_caught(installed, tmp_path, monkeypatch):
    def wrong(path: Path) -> ir.Model:
        model = load_own(path)
        value = next(each for each in model.graph.initializers.values() if each.const_value.numpy().size > 100)
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(1.001), name=value.name)
        return model

    monkeypatch.setattr("convertkit.targets.tvm.stage.load_own", wrong)
    with pytest.raises(ParityError, match="after tvm"):
        convertkit.export(NETWORK, "tvm", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
@pytest.mark.parametrize(("direction", "wanted"), [("RIGHT", [100, 0, 0, 0, 1, 7]), ("LEFT", [144, 0, 0, 0, 0, 7])])
def test_a_shift_beyond_the_width_is_zero(installed, tmp_path, direction, wanted):
    """It was delivered as a shift by the rest of the division by the width: generated counts are small."""
    ports = [helper.make_tensor_value_info(name, TensorProto.UINT8, [6]) for name in "xyz"]
    node = helper.make_node("BitShift", ["x", "y"], ["z"], "shift", direction=direction)
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "tvm", output=tmp_path / "out")
    feed = {"x": np.array([200, 3, 255, 1, 128, 7], np.uint8), "y": np.array([1, 8, 9, 255, 7, 0], np.uint8)}
    assert made.run(feed)["z"].tolist() == wanted


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes"),
    [
        ("GRU", {"x": [3, 1, 4], "w": [1, 15, 4], "r": [1, 15, 5]}, {"hidden_size": 5}),
        ("Attention", {"q": [1, 2, 3, 4], "k": [1, 2, 5, 4], "v": [1, 2, 5, 4]}, {}),
        ("Celu", {"x": [2, 3]}, {"alpha": 0.7}),
    ],
)
def test_what_its_importer_lacks_is_written_in_operators_that_it_has(kind, shapes, attributes):
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(kind, list(shapes), ["y"], "odd", **attributes)], "g", ports, [result])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(whole))
    write_forms(model)
    assert kind not in {node.op_type for node in model.graph}
    onnx.checker.check_model(ir.to_proto(model))


def suppressed(threshold: np.ndarray | None) -> ir.Model:
    """A NonMaxSuppression whose threshold of overlaps is stored, or an input."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
             for name, shape in (("boxes", [1, 4, 4]), ("scores", [1, 1, 4]), ("limit", []))]  # fmt: skip
    stored = [numpy_helper.from_array(np.int64(3), "most")]
    if threshold is not None:
        stored.append(numpy_helper.from_array(threshold, "limit"))
        given = given[:2]
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "limit"], ["y"], "nms")
    made = helper.make_tensor_value_info("y", TensorProto.INT64, [None, 3])
    graph = helper.make_graph([node], "g", given, [made], stored)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


def test_boxes_that_overlap_as_much_as_the_threshold_stay():
    model = suppressed(np.array([0.5], np.float32))
    write_forms(model)
    (node,) = [each for each in model.graph if each.op_type == "NonMaxSuppression"]
    np.testing.assert_array_equal(node.inputs[3].const_value.numpy(), [np.nextafter(np.float32(0.5), np.float32(1))])
    with pytest.raises(Unsupported, match=r"nms \(NonMaxSuppression\): its threshold is computed"):
        write_forms(suppressed(None))


@pytest.mark.parametrize("written", [True, False])
def test_boxes_that_do_not_overlap_stay_without_a_threshold(written):
    model = suppressed(np.array([0.0], np.float32))
    (node,) = list(model.graph)
    if not written:
        node.resize_inputs(3)
    write_forms(model)
    (node,) = list(model.graph)
    assert 0 < node.inputs[3].const_value.numpy().item() < 1e-37


def normalized(outputs: list[str]) -> ir.Model:
    """A LayerNormalization with these outputs."""
    stored = [numpy_helper.from_array(np.ones(4, np.float32), "scale")]
    node = helper.make_node("LayerNormalization", ["x", "scale"], outputs, "norm")
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "g", given, made, stored)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


@pytest.mark.parametrize(("outputs", "stays"), [(["y"], True), (["y", "mean", "deviation"], False)])
def test_a_layer_norm_whose_mean_is_read_is_written_out(outputs, stays):
    model = normalized(outputs)
    write_forms(model)
    assert any(node.op_type == "LayerNormalization" for node in model.graph) == stays
