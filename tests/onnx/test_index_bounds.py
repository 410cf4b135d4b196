"""Generated integers fit the tables that they look up: read from the graph, never where somebody said a range."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.onnx.index_bounds import with_index_bounds

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (int64[N,T] ids, int64[N,T] types, int64[N,T] mask, float[N,T] x) => (float[N,T,3] y)
<int64[1] last = {2}> {
    a = Gather (words, ids)
    real = DequantizeLinear (stored, one)
    d = Gather (real, mask)
    flat = Cast <to: int = 6> (ids)
    more = Unsqueeze (flat, last)
    c = Gather (other, more)
    b = Gather <axis: int = 1> (kinds, types)
    y = Identity (a)
}"""


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    path = tmp_path / "model.onnx"
    proto = onnx.parser.parse_model(TEXT)
    for name, shape in {"words": (9, 3), "other": (4, 3), "kinds": (3, 2), "stored": (7, 3), "one": ()}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
    onnx.save(proto, path)
    names = {"ids": "int64", "types": "int64", "mask": "int64", "x": "float32"}
    specs = tuple(TensorSpec(name, ("N", "T"), dtype) for name, dtype in names.items())
    return Artifact(path, "onnx", specs, (), "")


def ranges(specs: tuple[TensorSpec, ...]) -> dict[str, object]:
    return {spec.name: spec.value_range for spec in specs}


def test_the_smallest_table_counts_along_the_axis_that_is_indexed(source: Artifact) -> None:
    found = ranges(with_index_bounds(source, source.inputs))
    assert found == {"ids": (0.0, 4.0), "types": (0.0, 2.0), "mask": (0.0, 7.0), "x": None}


ASKS = {
    "float[7,5] x, int64[3] i -> y = Gather <axis = 1> (x, i)": (0, 5),
    "float[7,5] x, int64[3] i -> j = Sub (i, two) y = Gather (x, j)": (2, 9),
    "float[7,5] x, int64[3] i -> j = Add (i, two) y = Gather (x, j)": (0, 5),
    "float[7,5] x, int64[3,2] i -> y = GatherND (x, i)": (0, 5),
    "float[4,7,5] x, int64[4,1] i -> y = GatherND <batch_dims = 1> (x, i)": (0, 7),
    "float[7,5] x, int64[7,2] i -> y = GatherElements <axis = 1> (x, i)": (0, 5),
    "float[7,5] x, int64[2,5] i -> z = Cast <to = 1> (i) y = ScatterElements (x, i, z)": (0, 7),
    "float[N,5] x, int64[3] i -> y = Gather (x, i)": None,
    "float[7,5] x, int64[3] i -> y = OneHot (i, twenty, values)": (0, 20),
    "float[7,5] x, int64[7] i -> y = NegativeLogLikelihoodLoss (x, i)": (0, 5),
    "float[7,5] x, int64[7] i -> y = Div (twenty, i)": (1, 5),
    "float[7,5] x, int64[7] i -> y = Mod (i, two)": (0, 6),
    "float[7,5] x, int64[7] i -> y = Less (i, twenty)": (0, 22),
    "float[7,5] x, int64[7] i -> y = Equal (twenty, i)": (0, 22),
    "float[7,5] x, int64[7] i -> y = Clip (i, minus, two)": (-5, 4),
    "float[7,5] x, int64[7] i -> y = Max (twenty, i)": (0, 22),
    "float[7,5] x, uint8[7] i -> y = Clip (i, minus, two)": (0, 4),
    "float[7,5] x, int64[7] i -> y = Sign (i)": (-4, 4),
    "float[7,5] x, uint8[7] i -> y = DequantizeLinear (i, large)": (0, 256),
    "float[7,5] x, int8[7] i -> y = DequantizeLinear (i, large)": (-128, 128),
    "float[1,5,8,8] x, int64[4] i -> r = ConstantOfShape (box) y = RoiAlign (x, r, i)": (0, 1),
    "float[7,5] x, int32[7] i -> y = BitCast <to = 1> (i)": (0x3F000000, 0x40800000),
    "float[4,1,9,5] x, int64[4] i -> y = Attention (x, x, x, , , , i)": (1, 10),
    "float[4,1,9,5] x, int64[4] i, float[9,6] m -> y = Attention (x, x, x, m, , , i)": (1, 7),
    "float[4,9,5] x, int64[4] i -> u = Slice (x, zero, pair, one) y = TensorScatter (x, u, i)": (0, 8),
    'float[7,5] x, uint8[7] i -> y = BitShift <direction = "LEFT"> (i, i)': (0, 8),
    "float[7,5] x, int8[7] i -> j = Cast <to = 1> (i) y = Div (j, large)": (0, 128),
    "float[7,5] x, int64[5] i -> y = ReverseSequence (x, i)": (1, 8),
    "float[7,5] x, int64[7] i -> y = Add (i, i)": None,
}


@pytest.mark.parametrize("case", ASKS)
def test_what_an_operator_asks_of_integers(case: str, tmp_path: Path) -> None:
    inputs, body = case.split(" -> ")
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 26]> g ({inputs}) => (float y) {{ {body} }}')
    numbers = {"two": np.int64(2), "minus": np.int64(-3), "twenty": np.int64(20), "large": np.float32(255)}
    numbers |= {
        "values": np.float32([0, 1]),
        "zero": np.int64([0]),
        "one": np.int64([1]),
        "pair": np.int64([2]),
        "box": np.int64([4, 4]),
    }
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()
    )
    onnx.save(proto, tmp_path / "model.onnx")
    dtype = inputs.split(", ")[1].partition("[")[0]
    spec = TensorSpec("i", (7,), dtype)
    (found,) = with_index_bounds(Artifact(tmp_path / "model.onnx", "onnx", (spec,), (), ""), (spec,))
    assert found.value_range == ASKS[case]


def test_tables_of_a_fused_embedding(tmp_path: Path) -> None:
    names = {"words": 9, "types": 2, "mask": 2, "places": 5}
    proto = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (int32[N,T] words, int32[N,T] types, int32[N,T] mask, int32[N,T] places) => (float[N,T,3] y, int32[N] l)
        <float[9,3] a = {0.0}, float[5,3] b = {0.0}, float[2,3] c = {0.0}, float[3] s = {0.0}> {
        y, l = com.microsoft.EmbedLayerNormalization (words, types, a, b, c, s, s, mask, places) }""")
    onnx.save(proto, tmp_path / "model.onnx")
    specs = tuple(TensorSpec(name, ("N", "T"), "int32") for name in names)
    found = with_index_bounds(Artifact(tmp_path / "model.onnx", "onnx", specs, (), ""), specs)
    assert ranges(found) == {name: (0.0, rows) for name, rows in names.items()}


def test_a_range_that_was_said_stays(source: Artifact) -> None:
    said = tuple(replace(spec, value_range=(1.0, 3.0)) for spec in source.inputs)
    assert with_index_bounds(source, said) == said


def test_other_sources_are_left_alone(source: Artifact) -> None:
    other = replace(source, format="torchscript")
    assert with_index_bounds(other, other.inputs) == other.inputs
