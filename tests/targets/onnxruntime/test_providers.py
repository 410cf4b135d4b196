"""What execution providers would take of a model, by the lists that they publish."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.tools.mobile_helpers import usability_checker

import convertkit
from convertkit import formatting
from convertkit.onnx.providers import provider_shares
from convertkit.operators import ProviderShare
from convertkit.targets.onnxruntime import providers as module
from convertkit.targets.onnxruntime.providers import providers
from tests.command_line import here
from tests.onnx_models import write

LISTS = {
    "Core ML (ML program)": "coreml_supported_mlprogram_ops.md",
    "Core ML (neural network)": "coreml_supported_neuralnetwork_ops.md",
    "NNAPI": "nnapi_supported_ops.md",
}
MISSPELT = {"Argmax": "ArgMax"}
"""As the lists of ONNX Runtime have them."""


def shares(tmp_path: Path, text: str, **weights: np.ndarray) -> dict[str, ProviderShare]:
    """Of the graph ``text``, whose ``weights`` are its constants."""
    head = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(f"{head} {text}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return {each.provider: each for each in provider_shares(write(tmp_path, model), providers())}


@pytest.mark.parametrize("name", LISTS)
def test_the_lists_are_those_of_the_installed_runtime(name):
    file = Path(usability_checker.__file__).parent / LISTS[name]
    rows = [
        line.split("|")[1].replace("ai.onnx.", "ai.onnx:")
        for line in file.read_text().splitlines()
        if "ai.onnx" in line
    ]
    rows += [line.split("|")[1] for line in file.read_text().splitlines() if line.startswith("|com.microsoft")]
    listed = {row.removeprefix("ai.onnx:").replace("com.microsoft:", "com.microsoft.") for row in rows}
    (ours,) = [each for each in providers() if each.name == name]
    assert ours.operators == {MISSPELT.get(each, each) for each in listed}


def test_each_operator_and_attribute_is_one_of_onnx():
    for table in tomllib.loads(Path(module.__file__).with_name("providers.toml").read_text()).values():
        for name in (*table["operators"], *table.get("conditions", ())):
            if "." not in name and name not in ("SimplifiedLayerNormalization",):
                assert onnx.defs.has(name), name
        for name, conditions in table.get("conditions", {}).items():
            for attribute in (each.partition(" = ")[0] for each in conditions if " = " in each):
                assert attribute in onnx.defs.get_schema(name).attributes, (name, attribute)


def test_a_convolution_of_images(tmp_path):
    """The weights are constants; ``Erf`` is on three lists, ``Det`` on none."""
    found = shares(
        tmp_path,
        "g (float[1,2,8,8] x) => (float[1,3,6,6] z) { y = Conv (x, w)  z = Erf (y) }",
        w=np.ones((3, 2, 3, 3), np.float32),
    )
    whole = {name for name, each in found.items() if each.nodes == 2}
    assert whole == {"Core ML (ML program)", "OpenVINO (CPU)", "CUDA"}
    assert all(each.nodes == 1 for name, each in found.items() if name in ("NNAPI", "XNNPACK", "QNN"))
    assert {each.macs for each in found.values()} == {3 * 6 * 6 * 2 * 9}
    assert {each.of_nodes for each in found.values()} == {2}
    (left,) = found["NNAPI"].left
    assert (left.operator, left.count, left.first, left.reason) == ("Erf", 1, "z", "not in its list")


IMAGE, MATRIX = "float[1,2,8,8] x, float[3,2,3,3] w", "float[2,4] x, float[4,3] w"
UNMET = [
    ("float[1,2,8] x, float[3,2,3] w", "y = Conv (x, w)", "NNAPI", "needs 2d"),
    (IMAGE, "y = Conv (x, w)", "NNAPI", "input 1 or 2 is computed"),
    ("float[1,4,2,2] x", 'y = DepthToSpace <blocksize = 2, mode = "CRD"> (x)', "NNAPI", "needs mode = DCR"),
    ("float[1,4,2,2] x", "y = Softmax <axis = 1> (x)", "XNNPACK", "needs last axis"),
    ("float[1,2,4] x, float[1,4,3] w", "y = MatMul (x, w)", "XNNPACK", "needs rank 2"),
    ("float[N,4] x", "y = Relu (x)", "QNN", "a size is dynamic"),
    ("int32[2,4] x", "y = ArgMax <axis = 1> (x)", "CUDA", "its type is not float32, float16, float64"),
    ("int64[1] x", "y = ConstantOfShape (x)", "CUDA", "newer than the operator's version 9"),
    ("float[3,4] x", "y = ArgMax <select_last_index = 1> (x)", "CUDA", "needs select_last_index = 0"),
    (IMAGE, 'y = ConvTranspose <auto_pad = "SAME_LOWER"> (x, w)', "CUDA", "needs auto_pad = NOTSET or VALID"),
    ("int64[3] x, float d, float[2] v", "y = OneHot (x, d, v)", "CUDA", "the type of input 1 is not int32, int64"),
    (
        "float[3,1,4] x, float[1,8,4] w, float[1,8,2] r, float[1,6] p",
        "y = LSTM <hidden_size = 2> (x, w, r, , , , , p)",
        "CUDA",
        "input 7 is given",
    ),
    (
        "int8[4,32] x, float[4,2] s",
        "y = DequantizeLinear <axis = 1, block_size = 16> (x, s)",
        "CUDA",
        "blocks of 8 bits fail when they run",
    ),
    ("uint8[2,4] x, int8[4,3] w", "y = MatMulInteger (x, w)", "CUDA", "its type is not int8"),
    ("int32[2,4] x", "y = Pow (x, x)", "Core ML (ML program)", "its type is not float32"),
]
MET = [
    ("float[1,4,2,2] x", "y = DepthToSpace <blocksize = 2> (x)", "NNAPI"),
    ("float[1,4] x", "y = Softmax <axis = 1> (x)", "XNNPACK"),
    (MATRIX, "y = MatMul (x, w)", "XNNPACK"),
    ("float[2,4] x", "y = ArgMax <axis = 1> (x)", "CUDA"),
    ("float[1,4] x", "y = Equal (x, x)", "CUDA"),
    ("int4[4,32] x, float[4,2] s", "y = DequantizeLinear <axis = 1, block_size = 16> (x, s)", "CUDA"),
    ("int8[4,32] x, float[4] s", "y = DequantizeLinear <axis = 0> (x, s)", "CUDA"),
    (IMAGE, 'y = ConvTranspose <auto_pad = "VALID"> (x, w)', "CUDA"),
    ("int64[3] x, int64 d, float[2] v", "y = OneHot (x, d, v)", "CUDA"),
    ("float[3,1,4] x, float[1,8,4] w, float[1,8,2] r", "y = LSTM <hidden_size = 2> (x, w, r)", "CUDA"),
]


@pytest.mark.parametrize(("inputs", "node", "provider", "reason"), UNMET)
def test_conditions_of_the_lists(tmp_path, inputs, node, provider, reason):
    (left,) = shares(tmp_path, f"g ({inputs}) => (y) {{ {node} }}")[provider].left
    assert left.reason == reason


@pytest.mark.parametrize(("inputs", "node", "provider"), MET)
def test_conditions_that_are_met(tmp_path, inputs, node, provider):
    assert shares(tmp_path, f"g ({inputs}) => (y) {{ {node} }}")[provider].left == ()


@pytest.mark.parametrize(
    ("constant", "mode"), [(True, "tf_crop_and_resize"), (False, "tf_crop_and_resize"), (True, "half_pixel")]
)
def test_crops_of_a_constant_region_are_told_of(tmp_path, constant, mode):
    """CUDA's kernel reads other pixels: on a GPU its results were up to 4 off those of the CPU, of values up to 2."""
    text = f"""g (float[1,2,6,8] x{"" if constant else ", float[8] region"}) => (float[1,2,3,4] y) {{
        y = Resize <mode = "linear", coordinate_transformation_mode = "{mode}"> (x, region, , sizes) }}"""
    weights = {"sizes": np.array([1, 2, 3, 4])}
    if constant:
        weights["region"] = np.array([0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75], np.float32)
    left = shares(tmp_path, text, **weights)["CUDA"].left
    wrong = constant and mode == "tf_crop_and_resize"
    assert [each.reason for each in left] == ["by a constant region its kernel computes other numbers"] * wrong


@pytest.mark.parametrize(
    ("opset", "nodes", "provider"),
    [
        (11, "(float[2,4] x) => (int64[1,4] y) { y = ArgMax (x) }", "CUDA"),
        (13, "(float[2,4] x) => (int64[2] y) { y = Shape (x) }", "Core ML (neural network)"),
    ],
)
def test_an_attribute_that_the_opset_does_not_have_is_no_condition(tmp_path, opset, nodes, provider):
    model = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["" : {opset}]> g {nodes}')
    found = {each.provider: each for each in provider_shares(write(tmp_path, model), providers())}
    assert found[provider].left == ()


def test_integers_are_taken_with_the_conversions_around_them(tmp_path):
    """XNNPACK lists QLinearConv; Core ML has no integers; the others take the pairs as they are."""
    zero, scale = np.array(0, np.int8), np.array(0.1, np.float32)
    text = """g (float[1,2,8,8] x) => (float[1,3,6,6] y) {
        a = QuantizeLinear (x, s, z)  b = DequantizeLinear (a, s, z)  w = DequantizeLinear (k, s, z)
        c = Conv (b, w)  d = QuantizeLinear (c, s, z)  y = DequantizeLinear (d, s, z) }"""
    found = shares(tmp_path, text, s=scale, z=zero, k=np.ones((3, 2, 3, 3), np.int8))
    nodes = {name: each.nodes for name, each in found.items()}
    assert nodes["QNN"] == nodes["OpenVINO (CPU)"] == nodes["CUDA"] == nodes["NNAPI"] == 6
    assert nodes["Core ML (ML program)"] == 0
    assert {each.operator for each in found["XNNPACK"].left} == {"QuantizeLinear", "DequantizeLinear"}
    assert found["XNNPACK"].macs == found["XNNPACK"].of_macs > 0


def test_an_older_version_of_an_operator_is_taken(tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[1,4] x) => (bool[1,4] y) { y = Equal (x, x) }'
    (found,) = [
        each
        for each in provider_shares(write(tmp_path, onnx.parser.parse_model(text)), providers())
        if each.provider == "CUDA"
    ]
    assert found.left == ()


def test_what_is_computed_at_load_is_not_counted(tmp_path):
    """Weights that are cast and scaled are constants to whoever asks; ``Erf`` of them is on no list of NNAPI's."""
    text = "g (float[1,2,8,8] x) => (y) { a = Cast <to = 1> (k)  w = Erf (a)  y = Conv (x, w) }"
    found = shares(tmp_path, text, k=np.ones((3, 2, 3, 3), np.int8))["NNAPI"]
    assert (found.nodes, found.of_nodes, found.left) == (1, 1, ())


def test_long_chains_take_no_longer_than_they_are(tmp_path):
    """Weights that are doubled again and again, and more nodes than Python's stack has places."""
    doubled = "  ".join(f"w{i + 1} = Add (w{i}, w{i})" for i in range(60))
    chain = "  ".join(f"y{i + 1} = Relu (y{i})" for i in range(3000))
    text = f"g (float[1,4] x) => (float[1,4] z) {{ {doubled}  y0 = Mul (x, w60)  {chain}  z = Erf (y3000) }}"
    found = shares(tmp_path, text, w0=np.ones(4, np.float32))["NNAPI"]
    assert (found.nodes, found.of_nodes, found.parts) == (3001, 3002, 1)


def test_parts_end_where_the_cpu_is_waited_for(tmp_path):
    """Two branches of which one waits: ``Erf`` is not NNAPI's, so what reads it is a part of its own."""
    nodes = "a = Relu (x)  b = Erf (a)  c = Sigmoid (x)  d = Tanh (b)  z = Add (c, d)"
    text = f"g (float[1,4] x) => (float[1,4] z) {{ {nodes} }}"
    found = shares(tmp_path, text)
    assert (found["NNAPI"].nodes, found["NNAPI"].parts) == (4, 2)
    assert found["CUDA"].parts == 1


def test_the_command_tells_all_of_them_and_their_sources(tmp_path):
    text = "g (float[1,4] x) => (float[1,4] z) { a = Relu (x)  z = Erf (a) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    said = here("inspect", write(tmp_path, model), "--providers")
    assert said.code == 0
    assert "nothing was run" in said.out
    assert "TensorRT" in said.out
    found = json.loads(here("inspect", write(tmp_path, model), "--providers", "--json").out)["inspect"]["providers"]
    assert {each["provider"] for each in found} == {*(each.name for each in providers()), "TensorRT"}
    assert all(each["source"] for each in found)
    assert convertkit.inspect(write(tmp_path, model)).providers == ()


def test_the_report_tells_which_nodes_stay_on_the_cpu(tmp_path, capsys):
    """Of the delivered file, for this target alone; one line of the result has the counts."""
    nodes = "a = Relu (x)  b = Erf (a)  c = Erf (b)  z = Tanh (c)"
    text = f'<ir_version: 10, opset_import: ["" : 18]> g (float[1,4] x) => (float[1,4] z) {{ {nodes} }}'
    path = write(tmp_path, onnx.parser.parse_model(text))
    made = convertkit.export(path, "onnxruntime", output=tmp_path / "out")
    told = {each["provider"]: each for each in made.report["providers"]}
    assert list(told) == [*(each.name for each in providers()), "TensorRT"]
    (left,) = told["NNAPI"]["left"]
    assert (left["operator"], left["reason"], left["nodes"]) == ("Erf", "not in its list", ["b", "c"])
    assert (told["NNAPI"]["parts"], told["CUDA"]["nodes"], told["CUDA"]["left"]) == (2, 4, [])
    assert "2 Erf (not in its list)" in (tmp_path / "out" / "report.html").read_text()
    formatting.print_results([made])
    said = capsys.readouterr().out
    assert "providers all 4 nodes in Core ML (ML program), " in said
    assert "; 2 nodes in " in said
    other = convertkit.export(path, "tensorrt", output=tmp_path / "other")
    assert other.report["providers"] == []


def test_no_list_but_cudas_names_bfloat16(tmp_path):
    text = """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        b = Cast <to = 16> (x)  a = Sigmoid (b)  t = Tile (a, n)  y = Cast <to = 1> (t) }"""
    found = shares(tmp_path, text, n=np.ones(4, np.int64))
    assert found["Core ML (ML program)"].nodes == found["XNNPACK"].nodes == 0
    (left, *_) = found["Core ML (ML program)"].left
    assert left.reason == "its list does not name bfloat16"
    assert found["CUDA"].nodes == 4
    assert any("whether its kernel has bfloat16" in each for each in found["CUDA"].unjudged)
