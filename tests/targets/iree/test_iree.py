"""Modules of IREE: the integers that the graph says, any batch, the same bytes; without the engine one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit import plugins
from convertkit.artifact import Artifact, sha256_of
from convertkit.engines import environments
from convertkit.errors import MissingEngine, ParityError, ToolError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_own
from convertkit.result import Result
from convertkit.targets.iree.engine import engine
from convertkit.targets.iree.forms import write_exact_forms
from convertkit.targets.iree.platforms import PLATFORMS, cpu_name
from convertkit.targets.iree.profile import profile
from convertkit.targets.iree.runner import IreeRunner
from convertkit.targets.iree.stage import _refused
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION, TEST = (f"fixtures/digits/{name}" for name in ("model.pt", "calib.npz", "test.npz"))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine is installed."""
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path / "engines"))


@pytest.mark.parametrize("flags", [(), ("--int8", "--calib", CALIBRATION)], ids=["float32", "int8"])
def test_without_the_engine_one_sentence_says_what_to_install(without, tmp_path, flags):
    said = here("export", NETWORK, "--target", "iree", *flags, "-o", tmp_path / "out")
    check_refusal(said, 4, "the engine iree is not installed and this needs it; run: convertkit engines install iree")
    assert not any(tmp_path.iterdir())


def test_a_module_is_not_run_without_the_engine(without, tmp_path):
    artifact = Artifact(tmp_path / "model.vmfb", "iree", (), (), "")
    with pytest.raises(MissingEngine):
        plugins.runner(artifact).__enter__()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--iree-cpu", "host"), "the same command writes the same file on every machine"),
        (("--iree-cpu", "-mcpu=x"), "a processor's name as LLVM has it"),
        (("--iree-also", "windows"), "android-arm64"),
        (("--w8",), "w8"),
    ],
)
def test_what_does_not_fit_ends_it_before_any_work(without, tmp_path, flags, said):
    check_refusal(here("export", NETWORK, "--target", "iree", *flags, "-o", tmp_path / "out"), 2, said)
    assert not any(tmp_path.iterdir())


def test_its_profile_keeps_zero_points():
    found = profile(None)
    assert (found.activation, found.symmetric, found.tie_free) == ("int8", False, True)
    assert cpu_name("cortex-a76") == "cortex-a76"


def test_a_refusal_names_the_node_that_the_compiler_does():
    kinds = ("Relu", "Odd", "Odd")
    graph = ir.Graph([], [], nodes=[ir.Node("", kind, [], name=f"n{at}") for at, kind in enumerate(kinds)])
    model = ir.Model(graph, ir_version=10)
    refusal = _refused(model, {"operator": "Odd", "place": 1, "reason": "failed to legalize operation"})
    assert isinstance(refusal, Unsupported)
    assert str(refusal).startswith("n2 (Odd): IREE does not compile it: failed to legalize operation")
    other = _refused(model, {"operator": None, "place": 0, "reason": "out of registers"})
    assert isinstance(other, ToolError)
    assert str(other) == "IREE does not compile the model: out of registers"


@pytest.fixture(scope="module")
def installed() -> None:
    """Skips where the engine is not installed."""
    if environments.installed(engine) is None:
        pytest.skip("the engine iree is not installed: convertkit engines install iree")


@pytest.fixture(scope="module", params=["float32", "int8"])
def made(request: pytest.FixtureRequest, installed: None, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The digits network with a dynamic batch."""
    flags = {"int8": True, "calib": CALIBRATION} if request.param == "int8" else {}
    place = tmp_path_factory.mktemp(request.param)
    return convertkit.export(NETWORK, "iree", eval=TEST, max_drop=0.3, output=place / "out", **flags)


@pytest.mark.nightly
def test_the_module_computes_what_the_graph_says(made):
    """In int8 the same integers: nothing lies on a tie."""
    (output,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(output["relative"]) < 1e-5
    assert made.report["runs_here"]
    assert "IREE 3" in made.report["steps"][-1]["artifact"]["runtime"]


@pytest.mark.nightly
def test_any_batch_runs(made):
    images = np.load(TEST)["input"][:5]
    with plugins.runner(made.artifact) as runner:
        whole = runner.run({"input": images})["output"]
        single = [runner.run({"input": images[at : at + 1]})["output"] for at in range(5)]
    np.testing.assert_allclose(whole, np.concatenate(single), rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
def test_two_folders_hold_the_same_bytes(installed, tmp_path):
    digests = set()
    for name in ("one", "a-much-longer-name"):
        (tmp_path / name).mkdir()
        out = tmp_path / name / "out"
        made = convertkit.export(NETWORK, "iree", target_options={"iree": {"also": ["android-arm64"]}}, output=out)
        digests.add((sha256_of(made.artifact.path), sha256_of(out / "model-android-arm64.vmfb")))
    ((here_, there),) = digests
    assert here_ != there
    assert "android-arm64 | compiled from the same graph, not executed" in (out / "README.md").read_text()


@pytest.mark.nightly
def test_every_platform_gets_a_module(installed, tmp_path):
    options = {"iree": {"also": list(PLATFORMS)}}
    made = convertkit.export("fixtures/brackets/model.onnx", "iree", target_options=options, output=tmp_path / "out")
    assert {path.name for path in made.path.glob("*.vmfb")} == {
        "model.vmfb", *(f"model-{each}.vmfb" for each in PLATFORMS)
    }  # fmt: skip


@pytest.mark.nightly
def test_a_node_that_it_does_not_compile_is_named(installed, tmp_path):
    shapes = {"x": [1, 1, 2, 2], "y": [1, 1, 4, 4]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    places = numpy_helper.from_array(np.array([[[[0, 3], [8, 11]]]]), "i")
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], "plain"),
        helper.make_node("MaxUnpool", ["h", "i"], ["y"], "odd", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [places])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    said = here("export", tmp_path / "m.onnx", "--target", "iree", "-o", tmp_path / "out")
    assert said.code == 1
    assert "odd (MaxUnpool): IREE does not compile it" in said.complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_what_is_not_a_module_is_refused(made, tmp_path):
    path = tmp_path / "model.vmfb"
    for data, says in (
        (b"not one", "is not a module of IREE"),
        (made.artifact.path.read_bytes()[:2000], "does not load"),
    ):
        path.write_bytes(data)
        with pytest.raises(ToolError, match=says):
            IreeRunner(Artifact(path, "iree", (), (), "")).__enter__()


@pytest.mark.nightly
def test_wrong_numbers_of_a_module_are_caught(installed, tmp_path, monkeypatch):
    def wrong(path: Path) -> ir.Model:
        model = load_own(path)
        value = next(each for each in model.graph.initializers.values() if each.const_value.numpy().size > 100)
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(1.001), name=value.name)
        return model

    monkeypatch.setattr("convertkit.targets.iree.stage.load_own", wrong)
    with pytest.raises(ParityError, match="after iree"):
        convertkit.export(NETWORK, "iree", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _shifts(path: Path, dtype: np.dtype, direction: str) -> Path:
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    ports = [helper.make_tensor_value_info(name, kind, [6]) for name in "xyz"]
    node = helper.make_node("BitShift", ["x", "y"], ["z"], "shift", direction=direction)
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


SHIFTED = {"x": [200, 3, 255, 1, 128, 7], "y": [1, 8, 9, 255, 7, 0]}
"""Of bytes: by less than the width, by it and by more."""


@pytest.mark.parametrize(("direction", "wanted"), [("RIGHT", [100, 0, 0, 0, 1, 7]), ("LEFT", [144, 0, 0, 0, 0, 7])])
def test_a_shift_beyond_the_width_is_written_as_zero(tmp_path, direction, wanted):
    """No shift in the graph reaches the width: what IREE compiles would shift by the rest."""
    model = load_own(_shifts(tmp_path / "m.onnx", np.dtype(np.uint8), direction))
    write_exact_forms(model)
    model.graph.outputs.append(next(node for node in model.graph if node.op_type == "Min").outputs[0])
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    feed = {name: np.array(values, np.uint8) for name, values in SHIFTED.items()}
    found, counts = session.run(None, feed)
    assert found.tolist() == wanted
    assert counts.max() < 8


@pytest.mark.nightly
@pytest.mark.parametrize(("direction", "wanted"), [("RIGHT", [100, 0, 0, 0, 1, 7]), ("LEFT", [144, 0, 0, 0, 0, 7])])
def test_a_shift_beyond_the_width_is_zero(installed, tmp_path, direction, wanted):
    """It was delivered as a shift by the rest of the division by the width: generated counts are small."""
    path = _shifts(tmp_path / "m.onnx", np.dtype(np.uint8), direction)
    made = convertkit.export(path, "iree", output=tmp_path / "out")
    assert made.run({name: np.array(values, np.uint8) for name, values in SHIFTED.items()})["z"].tolist() == wanted


@pytest.mark.nightly
def test_attention_is_compiled_by_its_body(installed, tmp_path):
    shapes = {"q": [1, 2, 5, 4], "k": [1, 2, 7, 4], "v": [1, 2, 7, 4], "y": [1, 2, 5, 4]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([helper.make_node("Attention", [*"qkv"], ["y"], "look")], "g", ports[:3], ports[3:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "iree", output=tmp_path / "out")
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(0, 1, shapes[name]).astype(np.float32) for name in "qkv")
    scores = np.exp(q @ k.swapaxes(2, 3) / 2)
    assert np.allclose(made.run({"q": q, "k": k, "v": v})["y"], scores / scores.sum(-1, keepdims=True) @ v, atol=1e-5)


@pytest.mark.nightly
def test_a_norm_by_the_root_mean_square_is_compiled_by_its_body(installed, tmp_path):
    node = helper.make_node("RMSNormalization", ["x", "scale"], ["y"], "norm", epsilon=1e-5)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, 8]) for name in "xy"]
    scale = np.linspace(0.5, 2, 8, dtype=np.float32)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [numpy_helper.from_array(scale, "scale")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "iree", output=tmp_path / "out")
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 8)).astype(np.float32)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale
    assert np.allclose(made.run({"x": x})["y"], wanted, atol=1e-5)


SCATTERED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,2] x, int64[E,1] i, int64[E,2] j, float[E,2] u) => (float[N,2] a, float[N,2] b, float[2,N] c, float[N,2] d)
<float z = {0}> {
  s = Shape(x) o = Expand(z, s) p = ConstantOfShape(s)
  t = Transpose(x) q = Shape(t) l = Reshape(p, q) k = Transpose(j) w = Transpose(u)
  a = ScatterND <reduction = "add"> (o, i, u) v = Mul(u, u) b = ScatterND(o, i, v)
  c = ScatterElements <axis = 1, reduction = "add"> (l, k, w) d = Identity(p)
}"""
EDGES = {
    "x": np.ones((5, 2), np.float32),
    "i": np.array([[4], [0], [2]]),
    "j": np.array([[4, 1], [0, 1], [2, 0]]),
    "u": np.arange(6, dtype=np.float32).reshape(3, 2) + 1,
}


def test_scatters_of_one_fill_have_fills_of_their_own(tmp_path):
    """IREE makes one buffer of equal fills and writes into it; the numbers stay what they were."""
    onnx.save(onnx.parser.parse_model(SCATTERED), tmp_path / "m.onnx")
    model = canonicalize(ir.load(tmp_path / "m.onnx"))
    write_exact_forms(model)
    found = [node for node in model.graph if node.op_type.startswith("Scatter")]
    chosen = [node.inputs[0].producer().inputs[0].producer() for node in found]  # Expand (Where (Equal (size, number)))
    numbers = [node.inputs[0].producer().inputs[1].const_value.numpy().item() for node in chosen]
    assert len(set(numbers)) == 3
    assert max(numbers) < 0
    sizes = [node.inputs[0].producer().inputs[0].producer() for node in chosen]
    assert [node.inputs[1].const_value.numpy().item() for node in sizes] == [0, 0, 1], "the axis that is dynamic"
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, EDGES)
    given = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, EDGES)
    assert all(np.array_equal(*pair) for pair in zip(given, wanted, strict=True))


@pytest.mark.nightly
def test_scatters_of_one_fill_are_apart(installed, tmp_path):
    """They were refused: each gave the other's numbers, too."""
    onnx.save(onnx.parser.parse_model(SCATTERED), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "iree", output=tmp_path / "out")
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, EDGES)
    assert all(np.array_equal(*pair) for pair in zip(made.run(EDGES).values(), wanted, strict=True))


WINDOWS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,3,2,8] x, float[1,2,4] v, float[N,2,3,4] u) => (y, a, b, c, d, e, f)
<float[4,3,3,3] w, float[2,2,3] k> {
  y = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
  a = Conv <auto_pad = "SAME_UPPER", strides = [4]> (v, k)
  b = MaxPool <kernel_shape = [2], strides = [4]> (v)
  c = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [4, 3], count_include_pad = 1> (u)
  d = AveragePool <kernel_shape = [2, 3], strides = [2, 2], ceil_mode = 1> (u)
  e = AveragePool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)
  f = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1,
                   count_include_pad = 1> (x)
}"""


def _windows(path: Path) -> dict[str, np.ndarray]:
    """A model of windows that IREE computes in forms of their own, and inputs."""
    proto, rng = onnx.parser.parse_model(WINDOWS), np.random.default_rng(0)
    for name, shape in {"w": (4, 3, 3, 3), "k": (2, 2, 3)}.items():
        proto.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 1, shape).astype(np.float32), name))
    onnx.save(onnx.shape_inference.infer_shapes(proto), path)
    shapes = {"x": (2, 3, 2, 8), "v": (1, 2, 4), "u": (2, 2, 3, 4)}
    return {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def test_what_no_window_reads_is_cut_off_and_nothing_is_rounded_up(tmp_path):
    feed = _windows(tmp_path / "m.onnx")
    model = canonicalize(ir.load(tmp_path / "m.onnx"))
    write_exact_forms(model)
    found = {node.outputs[0].name: node for node in model.graph if node.op_type in ("Conv", "MaxPool", "AveragePool")}
    pads = {name: list(node.attributes.get_ints("pads", ())) for name, node in found.items()}
    rounded = {"d": [0, 0, 1, 1], "e": [0, 0, 0, 0], "f": [0, 0, 1, 1]}
    assert pads == {"y": [1, 1, 0, 1], "a": [], "b": [], "c": [1, 1, 0, 1], **rounded}
    assert not any(node.attributes.get_int("ceil_mode", 0) for node in found.values())
    sizes = {name: tuple(node.inputs[0].shape)[2:] for name, node in found.items()}
    assert sizes == {"y": (2, 8), "a": (3,), "b": (2,), "c": (2, 4), "d": (3, 4), "e": (2, 8), "f": (4, 10)}
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, feed)
    given = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)
    assert all(np.allclose(*pair, atol=1e-6) for pair in zip(given, wanted, strict=True))


KEPT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,2,8] v, float[1,1,5,5] x) => (b, i, h) {
  b, i = MaxPool <kernel_shape = [2], strides = [8]> (v)
  h = AveragePool <kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER", ceil_mode = 1,
                   count_include_pad = 1> (x)
}"""


def test_places_count_over_the_whole_input_and_stated_padding_counts(tmp_path):
    """A pool that tells its maxima's places is not cut; padding that a mean counts is in front of it, of SAME, too."""
    rng = np.random.default_rng(0)
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(KEPT))
    feed = {
        name: rng.normal(1, 1, shape).astype(np.float32) for name, shape in {"v": (1, 2, 8), "x": (1, 1, 5, 5)}.items()
    }
    model = canonicalize(ir.from_proto(proto))
    write_exact_forms(model)
    wanted = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    given = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)
    assert all(np.allclose(*pair, atol=1e-6) for pair in zip(given, wanted, strict=True))


@pytest.mark.nightly
def test_windows_that_fit_once_or_are_rounded_up_are_compiled(installed, tmp_path):
    """They were refused: "slice along dimension 1 runs out-of-bounds", and means for wrong numbers."""
    feed = _windows(tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "iree", output=tmp_path / "out")
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, feed)
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(made.run(feed).values(), wanted, strict=True))


LARGEST = """<ir_version: 10, opset_import: ["" : 21]>
g (float[8,5] x, float[N,4] z, int64[8,4] u)
  => (float[8,2] a, int64[8,2] i, float[2,5] b, int64[2,5] j, int64[8,4] c, int64[8,4] k, float[8,2] d, int64[8,2] l,
      float[N,4] e, int64[N,4] m, float[N,2] f, int64[N,2] n)
<int64[1] two = {2}, int64[1] four = {4}> {
  a, i = TopK(x, two) b, j = TopK <axis = 0, largest = 0> (x, two) c, k = TopK <largest = 0> (u, four)
  s = Neg(x) d, l = TopK(s, two) e, m = TopK(z, four) t = Neg(z) f, n = TopK <largest = 0> (t, two)
}"""


def _ranked() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, z = (np.round(rng.normal(0, 1, shape), 1).astype(np.float32) for shape in ((8, 5), (3, 4)))
    x[0], z[0] = -np.inf, [1, 1, -np.inf, 1]
    return {"x": x, "z": z, "u": rng.integers(0, 3, (8, 4))}


def test_places_of_the_largest_are_counted_apart(tmp_path):
    """IREE writes the places of one into those that the next begins with, where both have as many elements."""
    onnx.save(onnx.parser.parse_model(LARGEST), tmp_path / "m.onnx")
    model = canonicalize(ir.load(tmp_path / "m.onnx"))
    write_exact_forms(model)
    sizes = [tuple(map(str, node.inputs[0].shape)) for node in model.graph if node.op_type == "TopK"]
    assert sizes[:4] == [("8", "5"), ("8", "5"), ("8", "4"), ("8", "6")]
    assert sizes[4][1] != sizes[5][1]
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, _ranked())
    given = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, _ranked())
    assert all(np.array_equal(*pair) for pair in zip(given[:10], wanted[:10], strict=True))


@pytest.mark.nightly
def test_places_of_the_largest_are_those_of_each(installed, tmp_path):
    """Mixtures of experts were refused: the second layer's experts were the first one's."""
    onnx.save(onnx.parser.parse_model(LARGEST), tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "iree", output=tmp_path / "out")
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, _ranked())
    assert all(np.allclose(*pair, atol=1e-6) for pair in zip(made.run(_ranked()).values(), wanted, strict=True))


REFLECTED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,N,40] x, float[N,3,8,7] z) => (float[1,N,66] a, float[N,3,10,8] b, float[N,3,8,10] c)
<int64[6] p = {0, 0, 13, 0, 0, 13}, int64[4] q = {1, -1, 1, 2}, int64[2] e = {2, 3}, int64[2] r = {1, 2},
 int64[1] l = {-1}> {
  a = Pad <mode = "reflect"> (x, p) b = Pad <mode = "reflect"> (z, q, , e) c = Pad <mode = "reflect"> (z, r, , l)
}"""


def _bordered(path: Path) -> dict[str, np.ndarray]:
    onnx.save(onnx.parser.parse_model(REFLECTED), path)
    rng = np.random.default_rng(0)
    return {"x": rng.random((1, 2, 40), np.float32), "z": rng.random((3, 3, 8, 7), np.float32)}


def test_reflections_are_gathered(tmp_path):
    feed = _bordered(tmp_path / "m.onnx")
    model = canonicalize(ir.load(tmp_path / "m.onnx"))
    write_exact_forms(model)
    assert {node.op_type for node in model.graph} == {"Gather"}
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, feed)
    given = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)
    assert all(np.array_equal(*pair) for pair in zip(given, wanted, strict=True))


@pytest.mark.nightly
def test_reflections_are_compiled(installed, tmp_path):
    """Spectra of sounds and generators of pictures were refused ("'linalg.generic' op inferred …")."""
    feed = _bordered(tmp_path / "m.onnx")
    made = convertkit.export(tmp_path / "m.onnx", "iree", output=tmp_path / "out")
    wanted = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, feed)
    assert all(np.array_equal(*pair) for pair in zip(made.run(feed).values(), wanted, strict=True))
