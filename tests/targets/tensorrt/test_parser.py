"""What TensorRT's parser takes, as the package tells it and as the parser of TensorRT-RTX says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.targets.tensorrt.capability import capabilities, report
from convertkit.targets.tensorrt.parser import fault, parsers

trt = pytest.importorskip("tensorrt_rtx")


class Log(trt.ILogger):
    def log(self, severity: object, message: str) -> None:
        pass


LOG = Log()


@dataclass(frozen=True)
class Case:
    """A graph of one operator in question; ``says`` is empty where the parser takes it."""

    name: str
    inputs: str
    outputs: str
    body: str
    says: str = ""
    stored: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def model(self) -> onnx.ModelProto:
        text = f"g ({self.inputs}) => ({self.outputs}) {{ {self.body} }}"
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in self.stored.items())
        return model


IMAGE, SMALL = "float[1,2,5,5] x", "float[1,2,3,3] y"
FLOATS = "float[2,3] x", "float[2,3] y"
HALF = {"s": np.array([1, 1, 0.5, 0.5], np.float32)}
DILATED = "<kernel_shape = [2,2], dilations = [2,2]>"
BODIES = "then_branch = t () => (float[K] a) { a = Unique (x) }, else_branch = e () => (float[K] b) { b = Relu (x) }"
GIVEN = "float[2,3] x, int64[1] a", "float[N,M,K] y"
IMAGES = "float[1,2,5,5] x", "float[1,2,5,5] y"
STATISTICS = {name: np.ones(2, np.float32) for name in "sbav"}
RESIZED = "float[1,2,4,4] x", "float[1,2,2,2] y"
LSTM = {"w": np.ones((1, 20, 4), np.float32), "r": np.ones((1, 20, 5), np.float32)}
SEQUENCE = "float[2,3,4] x", "float[2,1,3,5] y"
PICKED = {"i": np.array([[0], [2]], np.int64)}
ROWS = "float[4,3] x, float[2,3] u", "float[4,3] y"

CASES = [
    Case("Relu", *FLOATS, "y = Relu (x)"),
    Case("Unique", "float[6] x", "float[K] y", "y = Unique (x)", "has no Unique"),
    Case("BitwiseAnd", "int32[2] x", "int32[2] y", "y = BitwiseAnd (x, x)", "has no BitwiseAnd"),
    Case("float64", "double[2] x", "double[2] y", "y = Abs (x)"),
    Case("int16", "int16[2] x", "float[2] y", "y = Cast <to = 1> (x)", "x is int16, a type"),
    Case("uint32", *FLOATS, "u = Cast <to = 12> (x) y = Cast <to = 1> (u)", "u is uint32"),
    Case("string", "string[2] x", "string[2] y", "y = Identity (x)", "x is string"),
    Case("uint8 read", "uint8[2,3] x", "float[2,3] y", "y = Cast <to = 1> (x)"),
    Case("uint8 given", "float[2,3] x", "uint8[2,3] y", "y = Cast <to = 2> (x)"),
    Case("uint8 inside", *FLOATS, "u = Cast <to = 2> (x) y = Cast <to = 1> (u)", "u is uint8 inside of the model"),
    Case("uint8 moved", "uint8[2,3] x", "float[3,2] y", "t = Transpose (x) y = Cast <to = 1> (t)", "x is uint8"),
    Case("int8 cast", "int8[2,3] x", "float[2,3] y", "y = Cast <to = 1> (x)"),
    Case(
        "int8 stored", *FLOATS, "c = Cast <to = 1> (w) y = Add (x, c)", "the constant w is int8",
        {"w": np.array(3, np.int8)},
    ),
    Case("MaxPool", IMAGE, "float[1,2,4,4] y", "y = MaxPool <kernel_shape = [2,2], dilations = [1,1]> (x)"),
    Case("dilated MaxPool", IMAGE, SMALL, f"y = MaxPool {DILATED} (x)", "dilations=[2, 2]"),
    Case("dilated AveragePool", IMAGE, SMALL, f"y = AveragePool {DILATED} (x)", "dilations=[2, 2]"),
    Case("dilated LpPool", IMAGE, SMALL, f"y = LpPool {DILATED} (x)", "dilations=[2, 2]"),
    Case(
        "MaxPool's places", IMAGE, "float[1,2,4,4] y, int64[1,2,4,4] i", "y, i = MaxPool <kernel_shape = [2,2]> (x)",
        "the first output alone, not i",
    ),
    Case("cubic Resize", *RESIZED, 'y = Resize <mode = "cubic"> (x, , s)', stored=HALF),
    Case("smooth Resize", *RESIZED, 'y = Resize <mode = "linear", antialias = 1> (x, , s)', "antialias=1", HALF),
    Case(
        "symmetric Resize", *RESIZED,
        'y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel_symmetric"> (x, , s)',
        "coordinate_transformation_mode=half_pixel_symmetric", HALF,
    ),
    Case(
        "Resize that keeps ratios", *RESIZED,
        'y = Resize <mode = "linear", keep_aspect_ratio_policy = "not_larger"> (x, , , s)',
        "keep_aspect_ratio_policy=not_larger", {"s": np.array([1, 2, 2, 2], np.int64)},
    ),
    Case(
        "TopK", "float[1,5000] x", "float[1,3840] y, int64[1,3840] i", "y, i = TopK (x, k)",
        stored={"k": np.array([3840])},
    ),
    Case(
        "large TopK", "float[1,5000] x", "float[1,3841] y, int64[1,3841] i", "y, i = TopK (x, k)", "K=3841",
        {"k": np.array([3841])},
    ),
    Case(
        "LayerNormalization's mean", "float[2,8] x", "float[2,8] y, float[2,1] m", "y, m = LayerNormalization (x, s)",
        "the first output alone, not m", {"s": np.ones(8, np.float32)},
    ),
    Case("LSTM", *SEQUENCE, "y = LSTM <hidden_size = 5> (x, w, r)", stored=LSTM),
    Case("coupled LSTM", *SEQUENCE, "y = LSTM <hidden_size = 5, input_forget = 1> (x, w, r)", "input_forget=1", LSTM),
    Case("ReduceSum", "float[2,3] x", "float[1,3] y", "y = ReduceSum (x, a)", stored={"a": np.array([0])}),
    Case(
        "ReduceSum of given axes", "float[2,3] x, int64[1] a", "float[N,M] y", "y = ReduceSum (x, a)",
        "the axes a are an input",
    ),
    Case("Unsqueeze of given axes", *GIVEN, "y = Unsqueeze (x, a)", "the axes a are an input"),
    Case("Squeeze", "float[1,3] x", "float[3] y", "y = Squeeze (x, a)", stored={"a": np.array([0])}),
    Case("LpPool of 1", IMAGE, "float[1,2,4,4] y", "y = LpPool <kernel_shape = [2,2], p = 1> (x)"),
    Case("LpPool of 3", IMAGE, "float[1,2,4,4] y", "y = LpPool <kernel_shape = [2,2], p = 3> (x)", "p=3"),
    Case("Mod", *FLOATS, "y = Mod <fmod = 1> (x, x)"),
    Case("Mod of integers", "int64[2] x", "int64[2] y", "y = Mod (x, x)"),
    Case("Python's Mod of floats", *FLOATS, "y = Mod (x, x)", "fmod=0 of floats"),
    Case("sequence", *FLOATS, "s = SequenceConstruct (x) y = Identity (x)", "has no SequenceConstruct"),
    Case("given sequence", "seq(float[2]) x", "seq(float[2]) y", "y = Identity (x)", "TensorRT has tensors alone"),
    Case("float8e5m2", *FLOATS, "e = Cast <to = 19> (x) y = Cast <to = 1> (e)", "e is float8_e5m2"),
    Case(
        "BatchNormalization in training", *IMAGES, "y, m, w = BatchNormalization <training_mode = 1> (x, s, b, a, v)",
        "training_mode=1", STATISTICS,
    ),
    Case("BatchNormalization", *IMAGES, "y = BatchNormalization (x, s, b, a, v)", stored=STATISTICS),
    Case("ScatterND", *ROWS, "y = ScatterND (x, i, u)", stored=PICKED),
    Case("ScatterND that adds", *ROWS, 'y = ScatterND <reduction = "add"> (x, i, u)', "reduction=add", PICKED),
    Case(
        "in a body", "bool c, float[4] x", "float[K] y",
        f"y = If (c) <{BODIES}>", "has no Unique",
    ),
]  # fmt: skip


def takes(model: onnx.ModelProto) -> bool:
    """Whether TensorRT-RTX parses the model and builds an engine from it, which needs no GPU."""
    builder = trt.Builder(LOG)
    network = builder.create_network(0)
    if not trt.OnnxParser(network, LOG).parse(model.SerializeToString()):
        return False
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    return builder.build_serialized_network(network, config) is not None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_says_what_the_parser_says(case: Case) -> None:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(case.model))
    found = next(filter(None, (fault(node) for node in model.graph.all_nodes())), "")
    assert case.says in found if case.says else not found
    assert takes(case.model) == (not case.says)


def test_the_table_has_the_operators_that_the_parser_has() -> None:
    parser = trt.OnnxParser(trt.Builder(LOG).create_network(0), LOG)
    names = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    has = {name for name in names if parser.supports_operator(name)}
    assert set(parsers().since) - has == {"DeformConv"}, "TensorRT has a plugin for it, TensorRT-RTX has not"
    assert not has - set(parsers().since)


UNIQUE = Case("unique", "float[6] x", "float[K] y", "r = Relu (x) y = Unique (r)").model


def test_a_refusal_names_the_node_and_the_ways_out(tmp_path: Path) -> None:
    UNIQUE.graph.node[1].name = "different"
    onnx.save(UNIQUE, tmp_path / "unique.onnx")
    with pytest.raises(Unsupported, match=r"different \(Unique\): TensorRT's parser has no Unique") as caught:
        convertkit.export(tmp_path / "unique.onnx", "tensorrt", output=tmp_path / "out")
    assert "--tensorrt-allow Unique" in str(caught.value)
    assert not (tmp_path / "out").exists()
    allow = {"tensorrt": {"allow": ["Unique"]}}
    made = convertkit.export(tmp_path / "unique.onnx", "tensorrt", output=tmp_path / "out", target_options=allow)
    page = (made.artifact.path.parent / "README.md").read_text()
    assert "- different (Unique): TensorRT's parser has no Unique" in page


def test_operators_of_other_domains_are_refused() -> None:
    node = ir.Node("com.microsoft", "BiasGelu", [])
    assert fault(node) == "com.microsoft::BiasGelu is not an operator of ONNX"


def test_the_report_has_every_node_and_names_those_that_do_not_parse() -> None:
    found = capabilities(ir.from_proto(UNIQUE), ["Unique"])
    told = report(found)
    assert [(each.operator, each.supported, each.since) for each in found] == [
        ("Relu", True, "8.6"),
        ("Unique", False, None),
    ]
    assert [each["name"] for each in told["unsupported"]] == [found[1].name]
    assert len(told["nodes"]) == 2


@pytest.mark.nightly
def test_it_agrees_with_the_parser_on_the_node_suite() -> None:
    """Refused is nothing that the parser takes, but for uint8, which its documentation excludes there."""
    from onnx.backend.test.case.node import collect_testcases

    agreed, refused = 0, set[str]()
    for case in collect_testcases(None):
        model = ir.from_proto(onnx.shape_inference.infer_shapes(case.model))
        faults = [found for node in model.graph.all_nodes() if (found := fault(node))]
        network = trt.Builder(LOG).create_network(0)
        parses = trt.OnnxParser(network, LOG).parse(case.model.SerializeToString())
        agreed += parses == (not faults)
        if parses and faults and "is uint8" not in faults[0]:
            refused.add(case.name)
    assert not refused
    assert agreed > 1600


def test_a_fourier_transform_is_a_product(tmp_path: Path) -> None:
    """Spectra of sounds (Keras' MelSpectrogram) were refused; a plugin may still compute it."""
    text = "g (float[N,3,16,1] x) => (float[N,3,9,2] y) { y = DFT <onesided = 1> (x, , axis) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    model.graph.initializer.append(numpy_helper.from_array(np.int64(-2), "axis"))
    onnx.save(model, tmp_path / "spectrum.onnx")
    made = convertkit.export(tmp_path / "spectrum.onnx", "tensorrt", output=tmp_path / "out", progress=False)
    assert "DFT" not in {node.op_type for node in onnx.load(made.artifact.path).graph.node}
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 1)).astype(np.float32)
    wanted = np.fft.rfft(x[..., 0])
    np.testing.assert_allclose(made.run({"x": x})["y"], np.stack([wanted.real, wanted.imag], -1), atol=1e-5)
    allow = {"tensorrt": {"allow": ["DFT"]}}
    kept = convertkit.export(tmp_path / "spectrum.onnx", "tensorrt", output=tmp_path / "kept", target_options=allow)
    assert "DFT" in {node.op_type for node in onnx.load(kept.artifact.path).graph.node}
