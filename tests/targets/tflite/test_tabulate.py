"""Functions of one number between integers: with ``--full-integer`` a table of what the QDQ graph says, exactly."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import convertkit
from convertkit.errors import Unsupported
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.passes.tabulate import OF_CONSTANT, UNARY
from tests.targets.tflite.compiled import compiled

TABLE = {"QUANTIZE": 1, "CAST": 1, "ADD": 1, "GATHER": 1, "DEQUANTIZE": 1}
PRODUCT = {"QUANTIZE": 1, "MUL": 1, "DEQUANTIZE": 1}
KERNELS = {"LeakyRelu": "LEAKY_RELU", "HardSwish": "HARD_SWISH"}
"""What integer kernels compute with any scales."""
FROM = {
    "Acosh": (0.01, -228),
    "Sqrt": (0.02, -128),
    "Log": (0.02, -129 + 1),
    "Acos": (1 / 128, 0),
    "Asin": (1 / 128, 0),
}
FROM |= {"Atanh": (1 / 129, 0)}
"""Scale and zero point where the function has no number for others."""
ATTRIBUTES = {"HardSigmoid": {"alpha": 1 / 6, "beta": 0.4}, "ThresholdedRelu": {"alpha": 0.7}, "Celu": {"alpha": 0.6}}
ATTRIBUTES |= {"Shrink": {"lambd": 0.6, "bias": 0.2}, "Gelu": {"approximate": "tanh"}}


def model(
    op: str, given: tuple[float, int], wanted: tuple[float, int], operand: float | None = None
) -> onnx.ModelProto:
    """One operator between pairs."""
    stored = {"o": np.array(operand, np.float32)} if operand is not None else {}
    nodes = []
    for name, (scale, point) in (("x", given), ("f", wanted)):
        stored |= {f"{name}s": np.array(scale, np.float32), f"{name}z": np.array(point, np.int8)}
        numbers = [f"{name}s", f"{name}z"]
        nodes += [helper.make_node("QuantizeLinear", [name, *numbers], [f"{name}q"])]
        nodes += [helper.make_node("DequantizeLinear", [f"{name}q", *numbers], [f"{name}d"])]
    operands = ["xd", "o"] if operand is not None else ["xd"]
    nodes.insert(2, helper.make_node(op, operands, ["f"], name="the_function", **ATTRIBUTES.get(op, {})))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 128])],
        [helper.make_tensor_value_info("fd", TensorProto.FLOAT, [2, 128])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def every(given: tuple[float, int]) -> dict[str, np.ndarray]:
    """Every integer once."""
    return {"x": ((np.arange(-128, 128) - given[1]) * np.float32(given[0])).astype(np.float32).reshape(2, 128)}


def check(op: str, operand: float | None, given: tuple[float, int], operators: dict[str, int]) -> None:
    wanted = (0.0213, -17)
    case = compiled(model(op, given, wanted, operand), Options(full_integer=True))
    assert case.operators == operators
    ((expected, result),) = case.both([every(given)])
    # ONNX Runtime's function may round to the other side of a tie.
    steps = np.abs(result["fd"] - expected["fd"]) / np.float32(wanted[0])
    assert steps.max() < 1.01
    assert (steps > 0.5).sum() <= 1
    assert len(np.unique(expected["fd"])) > 1


@pytest.mark.parametrize("op", sorted(UNARY - set(KERNELS)))
def test_every_integer_gets_what_the_graph_says(op: str):
    check(op, None, FROM.get(op, (0.037, 5)), PRODUCT if op == "Neg" else TABLE)


@pytest.mark.parametrize(
    ("op", "operand", "operators"),
    [("Div", 1.7, PRODUCT), ("Div", -300.0, PRODUCT), ("Pow", 2.0, TABLE), ("Pow", 3.0, TABLE)],
)
def test_so_does_an_operator_with_a_constant(op: str, operand: float, operators: dict[str, int]):
    assert op in OF_CONSTANT
    check(op, operand, (0.037, 5), operators)


@pytest.mark.parametrize(("scale", "wanted"), [(0.0151, (0.00266, -128)), (0.3, (0.05, -128)), (2e-7, (9.0, -90))])
def test_the_reciprocal_of_a_root_is_a_kernel(scale: float, wanted: tuple[float, int]):
    """Its numbers differ from the table's where the real one is within two hundredths of a tie."""
    case = compiled(model("Pow", (scale, -128), wanted, -0.5), Options(full_integer=True))
    assert case.operators == {"QUANTIZE": 1, "RSQRT": 1, "DEQUANTIZE": 1}
    ((_, result),) = case.both([every((scale, -128))])
    with np.errstate(divide="ignore"):
        exact = np.clip(1 / np.sqrt(scale * np.arange(256)) / wanted[0] + wanted[1], -128, 127)
    found = result["fd"].reshape(-1) / np.float32(wanted[0]) + wanted[1]
    assert np.abs(found - exact).max() < 0.53
    assert len(np.unique(found)) > 9


@pytest.mark.parametrize("operand", [-0.499, -0.51, -1.0])
def test_another_power_is_none(operand: float):
    check("Pow", operand, (0.0151, -128), TABLE)


@pytest.mark.parametrize(
    ("given", "wanted", "operators"),
    [
        ((0.037, 5), (0.0213, -17), PRODUCT),
        ((0.0213, -17), (0.37, 120), PRODUCT),
        ((0.037, -128), (0.0021, 4), PRODUCT),
        ((0.04, 5), (0.08, -17), TABLE),  # every second result is a tie
        ((0.037, 5), (100.0, -17), PRODUCT),  # all results are 0
    ],
)
def test_integers_of_another_scale(given: tuple[float, int], wanted: tuple[float, int], operators: dict[str, int]):
    case = compiled(model("Identity", given, wanted), Options(full_integer=True))
    assert case.operators == operators
    ((expected, result),) = case.both([every(given)])
    np.testing.assert_array_equal(result["fd"], expected["fd"])


def test_a_constant_of_more_axes_than_the_value_is_refused():
    """It gives the result its axes, which a look-up does not."""
    graph = model("Div", (0.037, 5), (0.0213, -17), 1.7)
    (stored,) = (each for each in graph.graph.initializer if each.name == "o")
    stored.CopyFrom(numpy_helper.from_array(np.full((1, 1, 1), 1.7, np.float32), "o"))
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(Unsupported, match=r"the_function .*computes in float32"):
        compiled(graph, Options(full_integer=True))


@pytest.mark.parametrize("op", sorted(KERNELS))
def test_what_has_a_kernel_keeps_it(op: str):
    wanted = (0.0213, -17)
    case = compiled(model(op, (0.037, 5), wanted), Options(full_integer=True))
    assert case.operators[KERNELS[op]] == 1
    assert "GATHER" not in case.operators


def test_it_stays_float_where_floats_may():
    case = compiled(model("HardSigmoid", (0.037, 5), (1 / 256, -128)), Options())
    assert "GATHER" not in case.operators


@pytest.mark.parametrize(("op", "given"), [("Sqrt", (0.02, 0)), ("Log", (0.02, 4))])
def test_results_that_are_not_numbers_are_refused(op: str, given: tuple[float, int]):
    with pytest.raises(Unsupported, match=r"the_function .*computes in float32"):
        compiled(model(op, given, (0.0213, -17)), Options(full_integer=True))


@pytest.mark.parametrize("target", ["tflite", "tflite-micro"])
def test_a_network_of_gates_is_delivered_in_integers(tmp_path: Path, target: str):
    """A squeeze-and-excite gate, an error function and a constant divisor, as MobileNetV3 and GELU write them."""
    rng = np.random.default_rng(0)
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[1,3,8,6] x) => (float[1,8,8,6] y) {
        c = Conv <pads=[1,1,1,1]> (x, w)
        p = GlobalAveragePool (c)
        s = Conv (p, v)
        h = HardSigmoid <alpha=0.16666667, beta=0.5> (s)
        m = Mul (c, h)
        d = Div (m, root)
        e = Erf (d)
        f = Mul (e, m)
        y = Conv (f, u)
    }"""
    proto = parser.parse_model(text)
    weights = {"w": (8, 3, 3, 3), "v": (8, 8, 1, 1), "u": (8, 8, 1, 1)}
    stored = {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in weights.items()}
    stored["root"] = np.array(np.sqrt(2), np.float32)
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in stored.items())
    onnx.save(proto, tmp_path / "net.onnx")
    samples = {"x": rng.normal(0, 1, (32, 3, 8, 6)).astype(np.float32)}
    result = convertkit.export(
        tmp_path / "net.onnx", target, int8=True, full_integer=True, calib=samples,
        output=tmp_path / "out",
    )  # fmt: skip
    (tensor,) = result.report["steps"][-1]["parity"]["versus_source"]["tensors"]
    assert tensor["snr_db"] > 25


CLAMPS = {"Relu": "Relu (a)", "Relu6": "Clip (a, zero, six)", "from -1 to 1": "Clip (a, minus, one)"}
WRITTEN = {"Add": "a = Add (d, c)", "Sub": "a = Sub (d, c)", "Mul": "a = Mul (d, c)", "Div": "a = Div (d, c)"}


@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("operator", WRITTEN)
def test_a_clamp_behind_the_function_is_in_the_table(operator: str, clamp: str) -> None:
    """It is fused into the operator before the table is made; 8 of 10 random integers were others without it."""
    check_written(f"{WRITTEN[operator]} r = {CLAMPS[clamp]}")


def test_a_hard_swish_that_is_written_out() -> None:
    check_written("a = Add (d, three) b = Clip (a, zero, six) m = Mul (d, b) r = Div (m, six)")


def check_written(body: str) -> None:
    constants = {"c": -0.7, "zero": 0.0, "one": 1.0, "minus": -1.0, "three": 3.0, "six": 6.0}
    stored = ", ".join(f"float {name} = {{{value}}}" for name, value in constants.items())
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2, 128] x) => (float[2, 128] y)
        <float s = {{0.06}}, int8 z = {{3}}, float t = {{0.05}}, int8 u = {{-100}}, {stored}>
        {{ q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) {body}
           p = QuantizeLinear (r, t, u) y = DequantizeLinear (p, t, u) }}"""
    case = compiled(parser.parse_model(text), Options(full_integer=True))
    assert "RELU" not in " ".join(case.operators)
    every = ((np.arange(256, dtype=np.float32) - 131) * np.float32(0.06)).reshape(2, 128)
    case.agree({"x": every}, tolerance=1e-6)
