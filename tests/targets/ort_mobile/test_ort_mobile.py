"""The .ort file: what it computes, its size, that its bytes depend on the model alone, what a reduced build needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import convertkit
from convertkit.errors import ToolError, Unsupported
from convertkit.targets.ort_mobile import sorting, stage
from convertkit.targets.ort_mobile.file import write_ort
from convertkit.targets.ort_mobile.required import CONFIG, kinds
from convertkit.targets.ort_mobile.runner import OrtRunner

NETWORK = "fixtures/digits/model.pt"
CALIBRATION = "fixtures/digits/calib.npz"
FLOAT_BYTES = 451_738
MOST = {"float32": 1.1, "w8": 0.35, "int8": 0.4}
"""Size of the file over that of the float32 ONNX."""
KINDS = {
    "float32": {"FusedConv", "Gemm"},
    "w8": {"Cast", "Mul"},
    "int8": {"QLinearConv", "QGemm", "QuantizeLinear"},
}


def exported(precision: str, folder: Path) -> convertkit.Result:
    flags = {} if precision == "float32" else {precision: True}
    if precision == "int8":
        flags |= {"calib": CALIBRATION, "full_integer": True}
    return convertkit.export(NETWORK, target="ort-mobile", output=folder, **flags)


@pytest.mark.parametrize("precision", MOST)
def test_what_ships_is_run_and_as_small_as_asked(precision, tmp_path):
    result = exported(precision, tmp_path / "out")
    assert result.passed
    assert result.artifact.path.stat().st_size < MOST[precision] * FLOAT_BYTES
    shipped = (tmp_path / "out" / "model.ort").read_bytes()
    assert sorting.in_order(shipped) == shipped
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.ort")
    images = np.load("fixtures/digits/test.npz")["input"][:5]
    (alone,) = session.run(None, {"input": images})
    np.testing.assert_array_equal(result.run({"input": images})["output"], alone)
    config = (tmp_path / "out" / CONFIG).read_text()
    assert kinds(config) >= KINDS[precision]
    assert str(tmp_path) not in config
    verdicts = result.report["steps"][-1]["diagnosis"]["usability"]
    assert set(verdicts) == {"NNAPI", "Core ML, MLProgram", "Core ML, NeuralNetwork"}
    if precision == "float32":
        assert "with fixed input sizes yes" in verdicts["NNAPI"]
        assert '"0": ["float"]' in config


def test_types_with_commas_do_not_split_operators():
    assert kinds('# a\nai.onnx;13;Cast{"inputs": {"0": ["float", "int8_t"]}},Gemm\ncom.microsoft;1;QGemm\n') == {
        "Cast", "Gemm", "QGemm",
    }  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "out"
    result = convertkit.export(
        NETWORK, target="onnxruntime", int8=True, full_integer=True, calib=CALIBRATION, output=folder
    )
    return result.artifact.path


def test_bytes_are_those_of_the_model_in_every_process(source, tmp_path):
    code = (
        "import sys; from pathlib import Path; from convertkit.targets.ort_mobile.file import write_ort; "
        "write_ort(Path(sys.argv[1]), Path(sys.argv[2]), small=False)"
    )
    found = set()
    for at in range(3):
        path = tmp_path / f"{at}.ort"
        subprocess.run([sys.executable, "-c", code, str(source), str(path)], check=True)
        found.add(sorting.in_order(path.read_bytes()))
    (data,) = found
    root = sorting.InferenceSession.InferenceSession.GetRootAs(data, 0).KernelTypeStrResolver()
    names = [root.OpKernelTypeStrArgs(at).OpId() for at in range(root.OpKernelTypeStrArgsLength())]
    assert len(names) > 5
    assert names == sorted(names)


def test_a_layout_that_is_not_known_is_refused(source, tmp_path, monkeypatch):
    path = tmp_path / "model.ort"
    write_ort(source, path, small=False)
    monkeypatch.setattr(sorting, "_last", lambda root: 1 << 30)
    with pytest.raises(ToolError, match="not known"):
        sorting.in_order(path.read_bytes())


def test_what_is_not_delivered_is_refused(source, tmp_path, monkeypatch):
    from convertkit.artifact import Artifact

    made = Artifact(source, "onnxruntime", (), (), "")
    monkeypatch.setattr(stage, "_MOST_BYTES", 1000)
    with pytest.raises(Unsupported, match="too large"):
        stage.WriteOrt("int8").run(made, tmp_path)
    with pytest.raises(Unsupported, match="values inside"):
        OrtRunner(made).probe()


def test_an_operator_that_onnx_runtime_lacks_is_refused(tmp_path):
    port = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Nothing", ["x"], ["y"], domain="nobody")
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("nobody", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [port], [result]), opset_imports=opsets), path)
    with pytest.raises(ToolError, match="does not write"):
        write_ort(path, tmp_path / "m.ort", small=False)
