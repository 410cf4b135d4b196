"""Hostile and broken ONNX files are refused in one sentence before any tensor is read."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import ConvertKitError, SourceError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.dictionaries import columns
from convertkit.onnx.load import load_model
from convertkit.onnx.node_order import sort_nodes


def model_with(nodes=None, initializers=(), inputs=None):
    nodes = nodes or [helper.make_node("Add", ["x", "w"], ["y"])]
    inputs = inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


WEIGHT = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")


def parsed(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')


def external(location, offset=0, length=24):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def lying():
    tensor = TensorProto()
    tensor.CopyFrom(WEIGHT)
    tensor.dims[:] = [1 << 14, 1 << 15]
    return tensor


def typed():
    return helper.make_tensor("w", TensorProto.FLOAT, [2, 3], [1.0] * 5 + [2.0])


def short_typed():
    tensor = typed()
    del tensor.float_data[-1]
    return tensor


def twice():
    """A Loop of two turns whose second result has no name."""
    given, result = ("turn", "goes", "a", "b"), ("on", "c", "d")
    of = {"turn": (TensorProto.INT64, []), "goes": (TensorProto.BOOL, []), "on": (TensorProto.BOOL, [])}
    ends = [
        [helper.make_tensor_value_info(name, *of.get(name, (TensorProto.FLOAT, [2, 3]))) for name in names]
        for names in (given, result)
    ]
    body = helper.make_graph([helper.make_node("Identity", [n], [m]) for n, m in zip(given[1:], result)], "b", *ends)
    turns = helper.make_tensor("turns", TensorProto.INT64, [], [2])
    return model_with([helper.make_node("Loop", ["turns", "", "x", "x"], ["y", ""], body=body)], [turns])


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "secret.bin").write_bytes(b"0" * 64)
    (tmp_path / "model" / "w.bin").write_bytes(np.ones(6, np.float32).tobytes())
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "secret.bin")

    def save(model):
        path = tmp_path / "model" / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return save


@pytest.mark.parametrize("weight", [WEIGHT, typed(), external("w.bin")])
def test_honest_models_load(saved, weight):
    model = load_model(saved(model_with(initializers=[weight])))
    assert model.graph.initializers["w"].const_value.numpy().shape == (2, 3)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (model_with(initializers=[lying()]), "declares"),
        (model_with(initializers=[short_typed()]), "declares"),
        (model_with(initializers=[external("../secret.bin")]), "outside the model's folder"),
        (model_with(initializers=[external("/etc/passwd")]), "outside the model's folder"),
        (model_with(initializers=[external("link.bin")]), "outside the model's folder"),
        (model_with(initializers=[external("none.bin")]), "does not exist"),
        (model_with(initializers=[external("w.bin", offset=8)]), "does not fit"),
        (model_with(initializers=[external("w.bin", offset=-8)]), "does not fit"),
        (model_with(initializers=[external("w.bin", length="many")]), "malformed"),
        (
            model_with([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])]),
            "the nodes form a cycle",
        ),
        (model_with([helper.make_node("Neg", ["nowhere"], ["y"])]), "nothing produces it"),
        (
            model_with(
                [helper.make_node("Neg", ["x"], ["y"])],
                inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 40, 1 << 20])],
            ),
            "absurd",
        ),
        (model_with([helper.make_node("NoSuchOperator", ["x"], ["y"])]), "invalid ONNX"),
        (model_with([helper.make_node("Split", ["x"], ["y", ""], axis=0, num_outputs=2)]), "output 2 of 2 no name"),
        (twice(), "output 2 of 2 no name"),
        (parsed('(float[2,2,2] x) => (float[2,2] y) { y = Einsum <equation = "......ii->...i"> (x) }'), "one ellipsis"),
        (parsed('(float[2,2,2] x) => (float[2,2] y) { y = Einsum <equation = "..ii->..i"> (x) }'), "one ellipsis"),
        (
            parsed(
                "(float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t (float[2] x) => (float[2] a)"
                " { a = Neg (x) }, else_branch = e () => (float[2] b) { b = Abs (x) }> }"
            ),
            "has a branch with the input 'x'",
        ),
        (onnx.ModelProto(), "is empty"),
    ],
)
def test_hostile_models_are_refused(saved, model, says):
    with pytest.raises(SourceError, match=says):
        load_model(saved(model))


def test_every_truncation_is_refused(saved):
    path = saved(model_with(initializers=[WEIGHT]))
    whole = path.read_bytes()
    for cut in np.linspace(0, len(whole) - 1, 20, dtype=int):
        path.write_bytes(whole[:cut])
        with pytest.raises(SourceError):
            load_model(path)


def test_dictionaries_are_tables_where_a_zipmap_makes_them(tmp_path):
    node = helper.make_node("ZipMap", ["x"], ["scores"], domain="ai.onnx.ml", classlabels_int64s=[4, 2])
    made = model_with([node])
    del made.graph.output[:]
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    made.graph.output.append(helper.make_value_info("scores", helper.make_sequence_type_proto(kind)))
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    onnx.save(made, tmp_path / "m.onnx")
    (scores,) = load_model(tmp_path / "m.onnx").graph.outputs
    assert (scores.dtype, list(scores.shape)[1:]) == (ir.DataType.FLOAT, [2])
    assert columns(tmp_path / "m.onnx") == {"scores": (4, 2)}


def test_dictionaries_as_inputs_are_refused(tmp_path):
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[4, 2])
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    made = model_with([node], inputs=[helper.make_value_info("x", kind)])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(Unsupported, match="x holds dictionaries"):
        load_model(tmp_path / "m.onnx")


OPTIMISED = {
    "LayerNormalization": ({"axis": -1, "epsilon": 1e-3}, 11),
    "SimplifiedLayerNormalization": ({"axis": -1, "epsilon": 1e-3}, 14),
}


@pytest.mark.parametrize("op", OPTIMISED)
@pytest.mark.parametrize("outside", [False, True])
def test_what_the_optimiser_writes_into_onnx_own_domain_is_taken(tmp_path, op, outside):
    """Also with weights outside the file, and an output whose shape nobody states."""
    attributes, opset = OPTIMISED[op]
    scale = numpy_helper.from_array(np.linspace(0.5, 1.5, 4).astype(np.float32), "scale")
    node = helper.make_node(op, ["x", "scale"], ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["n", 4]), ("y", None))
    ]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=outside, location="w.bin", size_threshold=0)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    results = [
        ort.InferenceSession(proto, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for proto in (str(path), ir.to_proto(canonicalize(load_model(path))).SerializeToString())
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-6)


def test_weights_that_are_not_inputs_are_taken_whatever_the_version(tmp_path):
    """IR 3 wants each initializer among the inputs; ONNX Runtime does not, and tools have taken them out."""
    proto = model_with(initializers=[WEIGHT])
    proto.ir_version, proto.opset_import[0].version = 3, 8
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    assert (model.ir_version, [value.name for value in model.graph.inputs]) == (4, ["x"])
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]))
    onnx.save(proto, tmp_path / "model.onnx")
    assert load_model(tmp_path / "model.onnx").ir_version == 3


def test_the_long_name_of_onnx_own_domain_is_the_empty_one(tmp_path):
    """The opset behind it counts: this Softmax is of opset 11, over all axes from the first on."""
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1, domain="ai.onnx")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3, 4)) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx", 11)]), tmp_path / "model.onnx")
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    proto = ir.to_proto(canonicalize(load_model(tmp_path / "model.onnx")))
    (got,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got.sum((1, 2)), 1, rtol=1e-6)


UNSORTED = {
    "nodes": "(float[2,4] x) => (float[2,4] y) { y = Add (a, b) b = Cos (a) a = Sin (x) }",
    "a branch": "(float[2,4] x, bool c) => (float[2,4] y) { y = If (c) <then_branch = t () => (float[2,4] q)"
    " { q = Neg (p) p = Sin (a) }, else_branch = e () => (float[2,4] r) { r = Abs (x) }> a = Cos (x) }",
}


@pytest.mark.parametrize("case", UNSORTED)
@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_nodes_out_of_order_are_sorted(tmp_path, case, target):
    """As ONNX Runtime does; one that is in order keeps its place."""
    onnx.save(parsed(UNSORTED[case]), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target, output=tmp_path / "out")
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    given = {"x": x} | ({"c": np.array(True)} if case == "a branch" else {})
    right = np.sin(x) + np.cos(np.sin(x)) if case == "nodes" else -np.sin(np.cos(x))
    np.testing.assert_allclose(done.run(given)["y"], right, rtol=0, atol=1e-6)


def test_nodes_in_order_stay_where_they_are(tmp_path):
    text = "(float[2] x) => (float[2] y) { d = Abs (x) a = Sin (x) b = Neg (a) y = Add (b, d) }"
    onnx.save(parsed(text), tmp_path / "m.onnx")
    assert [node.op_type for node in load_model(tmp_path / "m.onnx").graph] == ["Abs", "Sin", "Neg", "Add"]


def test_a_name_of_a_branch_of_its_own_asks_for_no_node_behind_it(tmp_path):
    text = (
        "(float[2] x, bool c) => (float[2] y) { z = If (c) <then_branch = t () => (float[2] a) { a = Neg (x) },"
        " else_branch = e () => (float[2] b) { b = Abs (x) }> a = Cos (x) y = Add (z, a) }"
    )
    model = parsed(text)
    sort_nodes(model.graph)
    assert [node.op_type for node in model.graph.node] == ["If", "Cos", "Add"]


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_the_domain_of_onnxruntimes_operators_need_not_be_imported(tmp_path, target):
    """ONNX Runtime imports it itself; integers among the inputs have their bounds looked for in the file."""
    text = (
        "(float[2,4] x, float[4] bias, int64[3] places) => (float[2,3] y)"
        " { h = com.microsoft.BiasGelu (x, bias) y = Gather <axis = 1> (h, places) }"
    )
    onnx.save(parsed(text), tmp_path / "m.onnx")
    assert convertkit.export(tmp_path / "m.onnx", target, output=tmp_path / "out").passed


UNRUNNABLE = {
    "strides of another rank": (
        "(float[1,3,5] x, float[1,3,3] w) => (float[1,1,3] y) { y = Conv <strides = [1, 1]> (x, w) }",
        "Attribute strides has incorrect size; by ONNX's rules it is not a valid model",
    ),
    "axes that no input has": (
        "(float[2,3] x) => (float[2,3] y) { y = Scan <num_scan_inputs = 1, scan_input_axes = [0, 1],"
        " body = b (float[3] a) => (float[3] c) { c = Neg (a) }> (x) }",
        "by ONNX's rules it is not a valid model",
    ),
    "directions that no input has": (
        "(float[2,3] x) => (float[2,3] y) { y = Scan <num_scan_inputs = 1, scan_input_directions = [0, 1],"
        " body = b (float[3] a) => (float[3] c) { c = Neg (a) }> (x) }",
        "scan_input_directions",
    ),
    "axes beyond the rank": (
        "(float[2,2,2] x) => (float[2,2,2] y) { y = MeanVarianceNormalization (x) }",
        "verification failed|not a valid model",
    ),
    "an attribute that is missing": (
        "(float[1,2,4] x, float[4,12] w, float[12] b) => (float[1,2,4] y)"
        " { y = com.microsoft.Attention <qkv_hidden_sizes = [4, 4]> (x, w, b) }",
        "Required attribute 'num_heads' is mi",
    ),
}


@pytest.mark.parametrize("case", UNRUNNABLE)
@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_what_no_runtime_takes_is_no_defect_of_a_stage(tmp_path, case, target):
    """A stage works while the source is run; where that fails, this is told, not what the stage stumbled over."""
    onnx.save(parsed(UNRUNNABLE[case][0]), tmp_path / "m.onnx")
    with pytest.raises(ConvertKitError) as refusal:
        convertkit.export(tmp_path / "m.onnx", target, output=tmp_path / "out")
    assert any(words in str(refusal.value) for words in UNRUNNABLE[case][1].split("|"))


def test_an_equation_in_a_function_is_read_too(tmp_path):
    """ONNX's shape inference never ends on it."""
    model = parsed("(float[2,2] x) => (float[2] y) { y = Neg (x) }")
    node = helper.make_node("Einsum", ["a"], ["b"], equation="a....b->ab")
    model.functions.append(helper.make_function("own", "F", ["a"], ["b"], [node], model.opset_import))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(SourceError, match="one ellipsis"):
        load_model(tmp_path / "m.onnx")
