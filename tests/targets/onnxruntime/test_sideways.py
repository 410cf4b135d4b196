"""Maps that are much higher than wide are computed on their side: the same numbers, and faster."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.targets.onnxruntime.row_times import window_saving_ns
from convertkit.targets.onnxruntime.sideways import lay_on_side

RNG = np.random.default_rng(0)
CHANNELS = 64
CONSTANTS = {
    "W": RNG.normal(0, 0.1, (CHANNELS, 3, 5, 3)),
    "D": RNG.normal(0, 0.3, (CHANNELS, 1, 3, 3)),
    "E": RNG.normal(0, 0.3, (CHANNELS, 1, 3, 3)),
    "P": RNG.normal(0, 0.1, (7, CHANNELS, 1, 1)),
    "F": RNG.normal(0, 0.05, (CHANNELS, CHANNELS, 3, 3)),
    "H": RNG.normal(0, 0.05, (CHANNELS, CHANNELS, 3, 3)),
    "B": RNG.normal(0, 1, CHANNELS),
    "U": RNG.normal(0, 0.1, (CHANNELS, 3, 9, 7)),
    "V": RNG.normal(0, 0.1, (CHANNELS, 3, 9, 7)),
    "G": RNG.uniform(0.5, 2, CHANNELS),
    "gain": RNG.normal(0, 1, (1, CHANNELS, 1, 1)),
    "columns": RNG.normal(0, 1, (1, 1, 1, 3)),
    "rows": RNG.normal(0, 1, (1, 1, 40, 1)),
    "three": RNG.uniform(0.001, 0.003, 3),
    "low": np.array(-0.5),
    "high": np.array(2.0),
    "scale": np.full(CHANNELS, 0.002),
    "step": np.array(0.02),
}
CONSTANTS = {name: np.asarray(each, np.float32) for name, each in CONSTANTS.items()}
CONSTANTS["zero"] = np.array(128, np.uint8)
CONSTANTS["I"] = RNG.integers(-127, 128, (CHANNELS, 3, 5, 3)).astype(np.int8)
SIZE = (2, 3, 80, 7)
FIRST = "c = Conv<strides = [2, 2], pads = [1, 0, 3, 1]>(x, W, B)"
"""Makes maps of 40 rows and 3 columns, of windows that reach 1 and 3 rows and 0 and 1 columns over the border."""
DEEP = (
    "r = Relu(c) f1 = Conv<pads = [1, 1, 1, 1]>(r, F, B) f2 = LeakyRelu(f1) f3 = Conv<pads = [1, 1, 1, 1]>(f2, H) "
    "s = Conv<pads = [1, 1, 1, 1], group = 64>(f3, D, B)"
)
EXCHANGED = {
    "to one place": f"{FIRST} {DEEP} y = GlobalAveragePool(s)",
    "and back": f"{FIRST} {DEEP} y = Clip(s, low, high)",
    "read by others, too": f"{FIRST} {DEEP} t = Erf(s) q = Sigmoid(s) a = Add(q, t) y = GlobalAveragePool(a)",
    "a gate": f"{FIRST} {DEEP} m = GlobalMaxPool(s) g = Sigmoid(m) n = Mul(s, g) y = Mul(n, gain)",
    "norms and slopes": f"{FIRST} {DEEP} n = BatchNormalization(s, B, G, B, G) p = PRelu(n, gain) "
    "y = GlobalAveragePool(p)",
    "pools": f"{FIRST} {DEEP} m = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 0, 1]>(s) "
    "a = AveragePool<kernel_shape = [2, 3], pads = [0, 1, 1, 0]>(s) u = GlobalMaxPool(a) y = Sub(m, u)",
    "a branch": f"{FIRST} {DEEP} t = Conv<dilations = [2, 1], pads = [2, 1, 2, 1], group = 64>(c, E) "
    "y = Concat<axis = 1>(s, t)",
    "what differs along a row": f"{FIRST} {DEEP} o = Mul(s, columns) y = GlobalAveragePool(o)",
    "what differs from row to row": f"{FIRST} {DEEP} o = Mul(s, rows) y = GlobalAveragePool(o)",
    "what is joined row by row": f"{FIRST} {DEEP} o = Concat<axis = 2>(s, f3) y = GlobalAveragePool(o)",
    "places of the greatest": f"{FIRST} {DEEP} m, y0 = MaxPool<kernel_shape = [2, 3]>(s) y1 = GlobalMaxPool(m)",
    "an output inside": f"{FIRST} {DEEP.replace('r = ', 'y0 = ').replace('(r,', '(y0,')} y1 = GlobalMaxPool(s)",
    "stored weights": "q = DequantizeLinear<axis = 0>(I, scale) "
    "c = Conv<strides = [2, 2], pads = [1, 0, 3, 1]>(x, q, B) r = Relu(c) f1 = Conv<pads = [1, 1, 1, 1]>(r, F) "
    "y = GlobalMaxPool(f1)",
    "a weight that leaves the model": "y0 = DequantizeLinear<axis = 0>(I, scale) "
    "c = Conv<strides = [2, 2], pads = [1, 0, 3, 1]>(x, y0, B) r = Relu(c) f1 = Conv<pads = [1, 1, 1, 1]>(r, F) "
    "y1 = GlobalMaxPool(f1)",
    "two parts of one input": "c = Conv(x, U, B) y0 = GlobalMaxPool(c) a = Conv(x, V) y1 = GlobalMaxPool(a)",
}
LEFT_ALONE = {
    "square maps": (f"{FIRST} {DEEP} y = GlobalAveragePool(s)", (1, 3, 80, 80)),
    "wide maps": (f"{FIRST} {DEEP} y = GlobalAveragePool(s)", (1, 3, 7, 80)),
    "unknown heights": (f"{FIRST} {DEEP} y = GlobalAveragePool(s)", (1, 3, "h", 7)),
    "integers": (
        f"v = QuantizeLinear(x, step, zero) k = DequantizeLinear(v, step, zero) {FIRST.replace('x,', 'k,')} {DEEP} "
        "y = GlobalAveragePool(s)",
        SIZE,
    ),
    "a weight that two read": (
        "c = Conv(x, U, B) y0 = GlobalMaxPool(c) a = Conv(x, U) y1 = GlobalMaxPool(a)",
        SIZE,
    ),
    "weights with a scale for each column": (
        "q = DequantizeLinear<axis = 3>(I, three) c = Conv(x, q) r = Relu(c) y = GlobalMaxPool(r)",
        SIZE,
    ),
    "what saves less than its transpositions": (f"{FIRST} y = Erf(c)", SIZE),
    "pointwise convolutions": ("c = Conv(x, P) y = Relu(c)", (1, CHANNELS, 80, 5)),
}


def parsed(body: str, size: tuple[int | str, ...] = SIZE) -> onnx.ModelProto:
    """The graph with the constants that it reads, its shapes known."""
    dims = ",".join(map(str, size))
    head = f'<ir_version: 9, opset_import: ["" : 19]> g (float[{dims}] x) => (y) '
    model = onnx.parser.parse_model(f"{head} {{ {body} }}")
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(each, name) for name, each in CONSTANTS.items() if name in read
    )
    del model.graph.output[:]
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    made = {each.name: each for each in inferred.graph.value_info}
    last = [name for node in model.graph.node for name in node.output if name.startswith("y")]
    inferred.graph.output.extend(made.pop(name) for name in last)
    del inferred.graph.value_info[:]
    inferred.graph.value_info.extend(made.values())
    onnx.checker.check_model(inferred, full_check=True)
    return inferred


def laid(model: onnx.ModelProto) -> tuple[int, onnx.ModelProto]:
    graph = ir.from_proto(model)
    return lay_on_side(graph), ir.to_proto(graph)


def answers(model: onnx.ModelProto, x: np.ndarray, *, optimised: bool = False) -> list[np.ndarray]:
    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.parametrize("body", EXCHANGED)
def test_the_same_numbers(body: str) -> None:
    plain = parsed(EXCHANGED[body])
    count, made = laid(plain)
    assert count == (2 if body == "two parts of one input" else 1)
    onnx.checker.check_model(made, full_check=True)
    names = [name for node in made.graph.node for name in node.output]
    assert len(set(names)) == len(names)
    x = RNG.standard_normal(SIZE).astype(np.float32)
    wanted = answers(plain, x)
    for found in (answers(made, x), answers(made, x, optimised=True)):
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * float(np.abs(want).max()))


@pytest.mark.parametrize("body", EXCHANGED)
def test_once_is_enough(body: str) -> None:
    _, made = laid(parsed(EXCHANGED[body]))
    again, unchanged = laid(made)
    assert not again
    assert unchanged.SerializeToString(deterministic=True) == made.SerializeToString(deterministic=True)


def test_a_name_stands_for_what_it_stood_for() -> None:
    plain = parsed(EXCHANGED["read by others, too"])
    _, made = laid(plain)
    for model in (plain, made):
        model.graph.output.extend(model.graph.value_info)
    x = RNG.standard_normal(SIZE).astype(np.float32)
    found, wanted = (
        dict(zip([each.name for each in model.graph.output], answers(model, x), strict=True)) for model in (made, plain)
    )
    assert set(found) & set(wanted) == {"s", "t", "y"}
    for name in ("s", "t", "y"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_others_stay(what: str) -> None:
    plain = parsed(*LEFT_ALONE[what])
    count, made = laid(plain)
    assert not count
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in plain.graph.node]


def test_a_row_of_one_column_saves_most() -> None:
    savings = []
    for width in (1, 5, 20, 40, 80):
        model = ir.from_proto(parsed("y = Conv<pads = [1, 1, 1, 1], group = 64>(x, D)", (1, CHANNELS, 40, width)))
        (node,) = model.graph
        savings.append(window_saving_ns(node) / width)
    assert savings == sorted(savings, reverse=True)
    assert savings[0] > savings[1] > 0 > savings[-1]


def test_what_is_saved_is_counted() -> None:
    """Rows of 5 take 2 + 1 steps, those of 25 take 2 + 4; six outputs of 64 filters take as long as three alone."""
    depthwise = ir.from_proto(parsed("y = Conv<pads = [1, 1, 1, 1], group = 64>(x, D)", (1, CHANNELS, 25, 5)))
    assert window_saving_ns(depthwise.graph[0]) == pytest.approx((25 * 3 - 5 * 6) * 9 * 4 * 0.3)
    first = ir.from_proto(parsed(FIRST.replace("c = ", "y = "))).graph[0]
    assert window_saving_ns(first) == pytest.approx((40 * 3 - 3 * (2 + 7 * 3)) * 3 * 15 * 0.3)


def test_what_is_delivered_lies_on_its_side(tmp_path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(parsed(EXCHANGED["to one place"]), source)
    convertkit.export(source, target="onnxruntime", output=tmp_path / "out")
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert sum(node.op_type == "Transpose" for node in made.graph.node) == 1
    assert {each.name for each in (*made.graph.input, *made.graph.output)} == {"x", "y"}
