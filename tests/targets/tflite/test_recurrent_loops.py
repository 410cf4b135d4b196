"""Sequences longer than what is written out: several steps in each turn of a WHILE, and a rest behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.costs.loops import MAX_STEPS, TOGETHER, WRITTEN_OUT
from convertkit.targets.tflite.passes import Options

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def recurrent(kind: str, steps: int, lengths: list[int] | None, linear: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    rows = GATES[kind] * 6
    shapes = {"w": (2, rows, 4), "r": (2, rows, 6), "b": (2, 2 * rows)}
    stored = [numpy_helper.from_array((rng.standard_normal(s) / 2).astype(np.float32), n) for n, s in shapes.items()]
    names = ["x", "w", "r", "b"]
    if lengths is not None:
        stored.append(numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
        names.append("lengths")
    options = {"linear_before_reset": linear} if kind == "GRU" else {}
    node = helper.make_node(kind, names, ["y", "last"], hidden_size=6, direction="bidirectional", **options)
    values = {"x": [steps, 3, 4], "y": [steps, 2, 3, 6], "last": [2, 3, 6]}
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in values.items()]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


class Always:
    """Stands for the costs that choose how many steps a turn has."""

    def __init__(self, together: int) -> None:
        self._together = together

    def together(self, steps: int, weight_bytes: float, layers: int) -> int:
        return self._together


@pytest.mark.parametrize("together", [WRITTEN_OUT, 1, 2, 5])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_every_form_computes_the_same(
    tmp_path: Path, kind: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    monkeypatch.setattr("convertkit.targets.tflite.compile.loops", lambda devices: Always(together))
    onnx.save(recurrent(kind, 13, [13, 6, 1], 1), tmp_path / "m.onnx")
    made = compile_model(load_model(tmp_path / "m.onnx"), Options())
    made.write(tmp_path / "m.tflite")
    steps = {operation.code for subgraph in made.program.subgraphs for operation in subgraph.operations}
    assert ("WHILE" in steps) is (together != WRITTEN_OUT)
    runner = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    x = np.random.default_rng(0).standard_normal((13, 3, 4)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})
    for _ in range(2):
        found = runner(x=x)
        for name, wanted in zip(("y", "last"), expected, strict=True):
            assert np.abs(found[name] - wanted).max() <= 1e-5


@pytest.mark.parametrize(("kind", "linear"), [("GRU", 0), ("GRU", 1), ("LSTM", 0), ("RNN", 0)])
@pytest.mark.parametrize("steps", [3, MAX_STEPS + 3, 50])
@pytest.mark.parametrize("ragged", [False, True])
def test_right_in_every_call(tmp_path: Path, kind: str, linear: int, steps: int, ragged: bool) -> None:
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    onnx.save(recurrent(kind, steps, [steps, steps // 2, 1] if ragged else None, linear), tmp_path / "m.onnx")
    compile_model(load_model(tmp_path / "m.onnx"), Options()).write(tmp_path / "m.tflite")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    runner = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    for call in range(3):
        x = np.random.default_rng(call).standard_normal((steps, 3, 4)).astype(np.float32)
        found = runner(x=x)
        for name, wanted in zip(("y", "last"), session.run(None, {"x": x}), strict=True):
            assert np.abs(found[name] - wanted).max() <= 1e-5


@pytest.mark.parametrize(("linear", "products"), [(1, 1), (0, 2)])
def test_gates_whose_product_reads_the_same_state_are_one(tmp_path: Path, linear: int, products: int) -> None:
    """Behind the reset gate's product nothing is left to be multiplied where it comes last."""
    onnx.save(recurrent("GRU", 4, None, linear), tmp_path / "m.onnx")
    (main,) = compile_model(load_model(tmp_path / "m.onnx"), Options()).program.subgraphs
    codes = [operation.code for operation in main.operations]
    assert codes.count("FULLY_CONNECTED") == 2 * (1 + 4 * products)  # in two directions, and one of all inputs


def test_a_step_reshapes_nothing(tmp_path: Path) -> None:
    """Every operator of a step costs about 0.1 µs, whatever it does: only the number of the turn is reshaped."""
    onnx.save(recurrent("LSTM", 50, None, 0), tmp_path / "m.onnx")
    program = compile_model(load_model(tmp_path / "m.onnx"), Options()).program
    bodies = [subgraph for subgraph in program.subgraphs[1:] if len(subgraph.operations) > 1]
    assert len(bodies) == 2  # one for each direction
    for body in bodies:
        codes = [operation.code for operation in body.operations]
        assert (codes.count("RESHAPE"), codes.count("PACK"), codes.count("LOGISTIC")) == (1, 0, TOGETHER[0])


@pytest.mark.parametrize(
    ("hidden", "device", "real"),
    [(32, "x86", True), (64, "x86", False), (32, "arm64-a76", False), (8, "arm64-i8mm", False)],
)
def test_integers_where_their_products_are_worth_quantizing_the_state(
    hidden: int, device: str, real: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 4 * hidden, 8), "r": (1, 4 * hidden, hidden)}
    stored, nodes = [], []
    for name, shape in shapes.items():
        integers, scales = rng.integers(-127, 128, shape).astype(np.int8), np.full(4 * hidden, 0.004, np.float32)
        stored += [numpy_helper.from_array(integers, f"{name}_int"), numpy_helper.from_array(scales, f"{name}_scale")]
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_int", f"{name}_scale"], [name], axis=1))
    nodes.append(helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden))
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in {"x": [70, 1, 8], "y": [70, 1, 1, hidden]}.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), tmp_path / "m.onnx")
    program = compile_model(load_model(tmp_path / "m.onnx"), Options(device=(device,))).program
    dense = [each for each in program.subgraphs[-1].operations if each.code == "FULLY_CONNECTED"]
    assert {str(each.inputs[1].dtype) for each in dense if each.inputs[1]} == {"float32" if real else "int8"}


def test_features_that_only_the_weights_tell(tmp_path: Path) -> None:
    """A decoder's first step is fed zeros of the encoder's sizes, which are read at run time."""
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    rng = np.random.default_rng(5)
    shapes = {"w": (1, 24, 8), "r": (1, 24, 6)}
    stored = [numpy_helper.from_array((rng.standard_normal(s) / 2).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Relu", ["x"], ["fed"]),
        helper.make_node("Shape", ["fed"], ["sizes"]),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("Concat", ["x", "zeros"], ["both"], axis=1),
        helper.make_node("Unsqueeze", ["both", "axes"], ["step"]),
        helper.make_node("LSTM", ["step", "w", "r"], ["", "last"], hidden_size=6),
    ]
    stored.append(numpy_helper.from_array(np.array([0]), "axes"))
    values = {"x": ["N", 4], "last": [1, "N", 6]}
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in values.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    compile_model(load_model(tmp_path / "m.onnx"), Options()).write(tmp_path / "m.tflite")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    runner = Interpreter(str(tmp_path / "m.tflite")).get_signature_runner()
    for batch in (1, 3):
        x = rng.standard_normal((batch, 4)).astype(np.float32)
        assert np.abs(runner(x=x)["last"] - session.run(None, {"x": x})[0]).max() <= 1e-5
