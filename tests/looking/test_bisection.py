"""``convertkit bisect`` finds planted faults to the node, across formats, and calls nothing else a fault."""

import json
import subprocess
import sys

import flatbuffers
import jsonschema
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.errors import ParityError, UsageError
from convertkit.state import STATE_FILE, save_arrays
from convertkit.summary import schema
from tests import onnx_models
from tests.command_line import check_refusal, here
from tests.looking.nets import image_net
from tests.looking.planted import FAULTS, everything, named, start


def write(place, model):
    """The model with the start of its state beside it."""
    place.mkdir()
    (place / "model.onnx").write_bytes(model.SerializeToString())
    save_arrays(place / STATE_FILE, start())
    return place / "model.onnx"


def faulty(place, name):
    """The node that is wrong, and the model in which it is."""
    node, plant = FAULTS[name]
    model = everything()
    plant(model)
    onnx.checker.check_model(model)
    return node, write(place / "faulty", model)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    return write(tmp_path_factory.mktemp("whole") / "model", everything())


@pytest.fixture(scope="session")
def compiled(whole, tmp_path_factory):
    return convertkit.export(whole, "tflite", output=tmp_path_factory.mktemp("compiled") / "out").path


def titles(node, model):
    return f"{node} ({named(model, node).op_type})"


@pytest.mark.parametrize("name", FAULTS)
def test_in_onnx_to_the_exact_node(whole, tmp_path, name):
    node, wrong = faulty(tmp_path, name)
    found = convertkit.bisect(whole, wrong)
    assert found.findings, found.headline
    assert found.findings[0].nodes == (titles(node, everything()),)
    assert isinstance(found.failure, ParityError)


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "float16 overflow"])  # that export is refused
def test_in_tflite(whole, tmp_path, name):
    """Compiled from the faulty model; where the compiler joins nodes, the wrong one is among the joined."""
    node, wrong = faulty(tmp_path, name)
    made = convertkit.export(wrong, "tflite", output=tmp_path / "out")
    found = convertkit.bisect(whole, made.path)
    assert found.findings, found.headline
    nodes = found.findings[0].nodes
    assert titles(node, everything()) in nodes
    assert len(nodes) <= 4, nodes


@pytest.mark.parametrize("name", ["dropped bias", "off-by-one slice", "the other Gelu", "wrong scale"])
def test_from_tflite_to_onnx(compiled, tmp_path, name):
    node, wrong = faulty(tmp_path, name)
    found = convertkit.bisect(compiled, wrong)
    assert found.findings, found.headline
    assert any(title.startswith(f"{node} ") for title in found.findings[0].nodes)
    assert any("the other way round" in note for note in found.notes)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("float16 overflow", "swapped parts")])
def test_where_no_name_is_kept(whole, tmp_path, name):
    """Graphs of one structure are matched node by node.

    Not so behind casts that one of them lacks, and the largest of all rows is the same in any order of them.
    """
    node, plant = FAULTS[name]
    model = everything()
    plant(model)
    kept = {value.name for value in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    for place, each in enumerate(model.graph.node):
        each.name = f"node_{place}"
        for names in (each.input, each.output):
            names[:] = [name if name in kept or not name else f"value_{name}" for name in names]
    found = convertkit.bisect(whole, write(tmp_path / "renamed", model))
    assert found.by == "structure"
    assert found.findings, found.headline
    nodes = found.findings[0].nodes
    assert titles(node, everything()) in nodes


def flattened(shift):
    """A convolution, flattened for a dense layer whose weights are ``shift`` elements away from where they belong."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.normal(size=(4, 3, 3, 3)), "d": np.roll(rng.normal(size=(64, 5)), shift, 0)}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        onnx.helper.make_node("Flatten", ["c"], ["f"], "flatten"),
        onnx.helper.make_node("Gemm", ["f", "d"], ["g"], "dense"),
        onnx.helper.make_node("Tanh", ["g"], ["y"], "tanh"),
    ]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    return onnx_models.model(nodes, {"x": [1, 3, 6, 6]}, {"y": [1, 5]}, tensors)


def test_elements_behind_a_flatten_may_stand_in_another_order(tmp_path):
    """TFLite has channels last there, and the weights behind it with them."""
    source = onnx_models.write(tmp_path, flattened(0))
    made = convertkit.export(source, "tflite", output=tmp_path / "out")
    assert convertkit.bisect(source, made.path).findings == ()
    (tmp_path / "other").mkdir()
    wrong = convertkit.bisect(onnx_models.write(tmp_path / "other", flattened(1)), made.path)
    assert set(wrong.findings[0].nodes) & {"flatten (Flatten)", "dense (Gemm)"}


@pytest.mark.parametrize("other", ["whole", "compiled"])
def test_nothing_departs(whole, compiled, other):
    found = convertkit.bisect(whole, whole if other == "whole" else compiled)
    assert found.findings == ()
    assert found.agrees
    assert found.failure is None
    assert found.matched > 20


def integers(place, change):
    """The image model as ONNX with integers, and the same with one of its QDQ nodes changed."""
    samples = np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32)
    source = place / "net.onnx"
    source.write_bytes(image_net().SerializeToString())
    made = convertkit.export(source, "tensorrt", int8=True, calib={"x": samples}, output=place / "int8")
    model = onnx.load(made.artifact.path)
    changed = change(model)
    onnx.save(model, place / "changed.onnx")
    return source, made.path, place / "changed.onnx", changed


def a_scale(factor):
    """The last QuantizeLinear and its DequantizeLinear with another scale; the value that they round."""

    def change(model):
        node = [node for node in model.graph.node if node.op_type == "QuantizeLinear"][-1]
        old = next(each for each in model.graph.initializer if each.name == node.input[1])
        scale = numpy_helper.to_array(old) * np.float32(factor)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(scale, np.float32), "changed_scale"))
        for each in model.graph.node:
            if each is node or node.output[0] in each.input[:1]:
                each.input[1] = "changed_scale"
        return node.input[0]

    return change


@pytest.mark.parametrize("factor", [0.1, 30.0])
def test_a_wrong_scale_between_float_and_int8(tmp_path, factor):
    source, right, wrong, value = integers(tmp_path, a_scale(factor))
    assert convertkit.bisect(source, right).findings == ()
    found = convertkit.bisect(source, wrong)
    assert any("--calib" in note for note in found.notes)
    assert found.findings, found.headline
    assert found.findings[0].name == value
    assert "dB" in found.findings[0].difference


@pytest.mark.parametrize("share", [0.2, 5.0])
def test_a_wrong_scale_in_an_integer_file(delivered, net, tmp_path, share):
    """In the FlatBuffer itself, as a broken writer would leave it."""
    from ai_edge_litert import schema_py_generated as tflite

    model = tflite.ModelT.InitFromObj(tflite.Model.GetRootAs(delivered["int8"].artifact.path.read_bytes(), 0))
    tensor = next(each for each in model.subgraphs[0].tensors if each.name.startswith(b"m2"))
    tensor.quantization.scale = np.asarray(tensor.quantization.scale) * np.float32(share)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    (tmp_path / "wrong.tflite").write_bytes(builder.Output())
    found = convertkit.bisect(net, delivered["int8"].path)
    assert found.findings == ()
    assert "values differs by more than its precision allows from what" in found.headline
    found = convertkit.bisect(net, tmp_path / "wrong.tflite")
    assert found.findings, found.headline
    assert found.findings[0].name == "m2"


def test_the_integers_of_two_formats(net, tmp_path):
    """QDQ in ONNX and what TFLite was compiled to: one step of a scale is allowed, a lost bias is not."""
    samples = {"x": np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32)}
    made = convertkit.export(net, "tflite", int8=True, full_integer=True, calib=samples, output=tmp_path / "out")
    model = image_net()
    for stored in model.graph.initializer:
        if stored.name == "b2":
            stored.CopyFrom(numpy_helper.from_array(np.zeros(8, np.float32), "b2"))
    (tmp_path / "wrong.onnx").write_bytes(model.SerializeToString())
    found = convertkit.bisect(tmp_path / "wrong.onnx", made.path)
    assert found.findings[0].name == "c2"


def test_every_departure(whole, tmp_path):
    model = everything()
    for name in ("dropped bias", "the other Gelu", "a clamp beside its place"):
        FAULTS[name][1](model)
    wrong = write(tmp_path / "three", model)
    found = convertkit.bisect(whole, wrong, every=True)
    assert [each.name for each in found.findings] == ["c2", "g2", "y"]
    assert len(convertkit.bisect(whole, wrong).findings) == 1


def test_the_line_of_the_source(digits, tmp_path):
    """A PyTorch model against a changed file: the line of its own code is named where the exporter has noted it."""
    made = convertkit.export(digits.model, "onnxruntime", output=tmp_path / "out")
    model = onnx.load(made.artifact.path)
    conv = [node for node in model.graph.node if node.op_type == "Conv"][2]
    bias = next(each for each in model.graph.initializer if each.name == conv.input[2])
    bias.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(bias)), bias.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    found = convertkit.bisect(digits.model, tmp_path / "wrong.onnx")
    assert found.findings[0].name == conv.output[0]


@pytest.mark.parametrize("kind", ["onnx", "tflite", "int8"])
def test_the_minimal_case_runs_by_itself(kind, net, tmp_path):
    model = image_net()
    for stored in model.graph.initializer:
        if stored.name == "b2":
            stored.CopyFrom(numpy_helper.from_array(np.zeros(8, np.float32), "b2"))
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(model.SerializeToString())
    if kind != "onnx":
        samples = {"x": np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32)}
        how = {"int8": True, "full_integer": True, "calib": samples} if kind == "int8" else {}
        wrong = convertkit.export(wrong, "tflite", output=tmp_path / "out", **how).path
    found = convertkit.bisect(net, wrong, output=tmp_path / "case")
    (finding,) = found.findings
    parts = onnx.load(tmp_path / "case" / "first.onnx")
    assert [node.name for node in parts.graph.node] == ["second"]
    said = subprocess.run(
        [sys.executable, "-P", finding.repro], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    largest = said.stdout.splitlines()[-1]
    assert largest.startswith("largest difference")
    assert float(largest.split()[2]) == pytest.approx(abs(finding.expected - finding.got), rel=1e-3)
    with pytest.raises(UsageError, match="not empty"):
        convertkit.bisect(net, wrong, output=tmp_path / "case")


def test_command_and_json(whole, tmp_path):
    _, wrong = faulty(tmp_path, "the other Gelu")
    said = here("bisect", whole, wrong, "--json")
    told = json.loads(said.out)
    jsonschema.validate(told, schema(), cls=jsonschema.Draft202012Validator)
    assert (said.code, told["exit_code"], told["error"]["kind"]) == (3, 3, "ParityError")
    assert told["bisect"]["findings"][0]["nodes"] == ["gelu (Gelu)"]
    good = here("bisect", whole, whole, "--json")
    assert (good.code, json.loads(good.out)["bisect"]["findings"]) == (0, [])
    check_refusal(here("bisect", whole, tmp_path / "nowhere.onnx"), 1, "nowhere.onnx")
    assert here("bisect", whole, wrong).code == 3


def test_an_integer_file_departs_from_itself_nowhere(net, tmp_path):
    """Its ONNX computes reals where the file has integers, at its ends too."""
    samples = {"x": np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32)}
    how = {"int8": True, "full_integer": True, "io_dtype": "int8", "calib": samples}
    made = convertkit.export(net, "tflite", output=tmp_path / "out", **how)
    alone = tmp_path / "alone.tflite"
    alone.write_bytes(made.artifact.path.read_bytes())
    found = convertkit.bisect(alone, alone)
    assert found.findings == (), found.headline
    assert found.agrees
    assert found.matched >= 5


@pytest.mark.case
@pytest.mark.nightly
def test_no_real_model_departs_from_itself(cases):
    every = (*sorted(cases.rglob("*.tflite")), *sorted(cases.rglob("*.onnx")))
    files = [path for path in every if path.stat().st_size and "silero" not in path.name]  # whose rate must be told
    assert len(files) > 10
    for path in files:
        found = convertkit.bisect(path, path)
        assert found.findings == (), (path.name, found.headline)


def looping(place, added, kind):
    """A body that adds a constant, below a Loop of four turns or in both branches of an If."""
    add = onnx.helper.make_node("Add", ["state" if kind == "Loop" else "before", "c"], ["next"], "inside")
    constant = onnx.helper.make_node("Constant", [], ["c"], value_float=added)
    value = onnx.helper.make_tensor_value_info
    floats, tensor = ("next", onnx.TensorProto.FLOAT, ["N", 4]), onnx.numpy_helper.from_array
    if kind == "Loop":
        keep = onnx.helper.make_node("Identity", ["go"], ["on"])
        inputs = [value("turn", onnx.TensorProto.INT64, []), value("go", onnx.TensorProto.BOOL, [])]
        inputs.append(value("state", onnx.TensorProto.FLOAT, ["N", 4]))
        outputs = [value("on", onnx.TensorProto.BOOL, []), value(*floats)]
        body = onnx.helper.make_graph([constant, add, keep], "body", inputs, outputs)
        node = onnx.helper.make_node("Loop", ["four", "yes", "before"], ["made"], "control", body=body)
    else:
        body = onnx.helper.make_graph([constant, add], "body", [], [value(*floats)])
        other = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["before"], ["same"])], "other", [],
                                       [value("same", *floats[1:])])  # fmt: skip
        total = [onnx.helper.make_node("ReduceSum", ["before"], ["sum"], keepdims=0)]
        total.append(onnx.helper.make_node("Less", ["sum", "limit"], ["is_less"]))
        node = onnx.helper.make_node("If", ["is_less"], ["made"], "control", then_branch=body, else_branch=other)
    nodes = [onnx.helper.make_node("Relu", ["x"], ["before"], "relu"), *(total if kind == "If" else []), node]
    nodes.append(onnx.helper.make_node("Tanh", ["made"], ["y"], "tanh"))
    stored = [tensor(np.array(4), "four"), tensor(np.array(True), "yes"), tensor(np.float32(1e6), "limit")]
    model = onnx_models.model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, stored)
    return onnx_models.write(place, model, f"{kind}-{added}.onnx")


@pytest.mark.parametrize(("kind", "within"), [("Loop", "control (Loop), turn 1"), ("If", "control (If)")])
def test_in_a_body_to_the_exact_node(tmp_path, kind, within):
    found = convertkit.bisect(looping(tmp_path, 0.01, kind), looping(tmp_path, 0.05, kind), output=tmp_path / "bug")
    (finding,) = found.findings
    assert (finding.nodes, finding.within) == (("inside (Add)",), (within,))
    assert f"differs from what inside (Add) computes, in the body of {within}: " in finding.sentence
    assert not any("bodies" in each for each in found.notes)
    case = onnx.load(tmp_path / "bug" / "first.onnx")
    assert [node.op_type for node in case.graph.node] == ["Constant", "Add"]
    said = subprocess.run([sys.executable, finding.repro], capture_output=True, text=True, check=True).stdout
    assert "largest difference 0.04" in said
    same = convertkit.bisect(looping(tmp_path, 0.01, kind), looping(tmp_path, 0.01, kind))
    assert not same.findings


def nested(place, name, table, turns=4):
    """A Loop that adds a row of a table of the graph around it, in an If that reads that graph, too."""
    value, floats = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    node, tensor = onnx.helper.make_node, onnx.numpy_helper.from_array
    rows = [node("Gather", ["table", "turn"], ["row"], "row"), node("Mul", ["row", "gain"], ["scaled"], "scale")]
    branches = {}
    for key, inner in {
        "then_branch": node("Add", ["state", "scaled"], ["more"], "more"),
        "else_branch": node("Identity", ["state"], ["more"]),
    }.items():
        branches[key] = onnx.helper.make_graph([inner], key, [], [value("more", floats, ["N", 4])])
    rows.append(node("If", ["go"], ["next"], "choice", **branches))
    inputs = [value("turn", onnx.TensorProto.INT64, []), value("go", onnx.TensorProto.BOOL, [])]
    inputs.append(value("state", floats, ["N", 4]))
    outputs = [value("on", onnx.TensorProto.BOOL, []), value("next", floats, ["N", 4])]
    body = onnx.helper.make_graph([*rows, node("Identity", ["go"], ["on"])], "body", inputs, outputs)
    nodes = [node("Relu", ["x"], ["before"], "relu"), node("Sigmoid", ["before"], ["gain"], "gain")]
    nodes += [node("Loop", ["turns", "yes", "before"], ["made"], "control", body=body)]
    nodes += [node("Tanh", ["made"], ["y"], "tanh")]
    stored = [tensor(np.array(turns), "turns"), tensor(np.array(True), "yes"), tensor(table, "table")]
    return onnx_models.write(place, onnx_models.model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, stored), f"{name}.onnx")


@pytest.fixture
def table():
    return np.random.default_rng(0).normal(0, 0.1, (4, 4)).astype(np.float32)


def test_in_a_later_turn(tmp_path, table):
    other = table.copy()
    other[2, 1] += 0.05
    (finding,) = convertkit.bisect(nested(tmp_path, "one", table), nested(tmp_path, "two", other)).findings
    assert (finding.nodes, finding.within) == (("row (Gather)",), ("control (Loop), turn 3",))


def test_in_a_body_of_a_body(tmp_path, table):
    path = nested(tmp_path, "three", table)
    model = onnx.load(path)
    (choice,) = (each for each in model.graph.node[2].attribute[0].g.node if each.op_type == "If")
    branches = {attribute.name: attribute.g for attribute in choice.attribute}
    branches["then_branch"].node[0].op_type = "Sub"
    onnx.save(model, path)
    (finding,) = convertkit.bisect(nested(tmp_path, "four", table), path).findings
    assert (finding.nodes, finding.within) == (("more (Add)",), ("control (Loop), turn 1", "choice (If)"))


def test_where_bodies_agree_their_node_is_named(tmp_path, table):
    """A Loop of another number of turns: no value in its body differs."""
    found = convertkit.bisect(nested(tmp_path, "one", table), nested(tmp_path, "two", table, turns=3))
    assert [each.nodes for each in found.findings] == [("control (Loop)",)]
    (note,) = [each for each in found.notes if "bodies" in each]
    assert note.startswith("the values in the bodies of control (Loop) do not tell")


@pytest.mark.nightly
def test_above_two_gigabytes(tmp_path):
    """Weights that one protobuf cannot hold: the file beside the model is a sparse one."""
    rows = 600_000_000
    with (tmp_path / "table.bin").open("wb") as file:
        file.write(np.random.default_rng(0).standard_normal(1000).astype(np.float32).tobytes())
        file.truncate(4 * rows)
    table = onnx.TensorProto(name="table", data_type=1, dims=[rows, 1], data_location=1)
    for key, value in (("location", "table.bin"), ("offset", "0"), ("length", str(4 * rows))):
        table.external_data.add(key=key, value=value)
    for name, added in (("a.onnx", 1.5), ("b.onnx", 1.75)):
        nodes = [
            onnx.helper.make_node("Gather", ["table", "ids"], ["rows"], "look"),
            onnx.helper.make_node("Add", ["rows", "s"], ["shifted"], "shift"),
            onnx.helper.make_node("Tanh", ["shifted"], ["y"], "act"),
        ]
        ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["N"])
        y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 1])
        stored = [table, onnx.numpy_helper.from_array(np.array([added], np.float32), "s")]
        graph = onnx.helper.make_graph(nodes, "g", [ids], [y], stored)
        opset = [onnx.helper.make_opsetid("", 17)]
        (tmp_path / name).write_bytes(
            onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
        )
    np.savez(tmp_path / "ids.npz", ids=np.arange(8))
    found = convertkit.bisect(
        tmp_path / "a.onnx", tmp_path / "b.onnx", calib=tmp_path / "ids.npz", output=tmp_path / "bug"
    )
    assert [each.nodes for each in found.findings] == [("shift (Add)",)]
    assert sum(file.stat().st_size for file in (tmp_path / "bug").iterdir()) < 100_000
