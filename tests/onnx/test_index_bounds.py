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


def test_a_range_that_was_said_stays(source: Artifact) -> None:
    said = tuple(replace(spec, value_range=(1.0, 3.0)) for spec in source.inputs)
    assert with_index_bounds(source, said) == said


def test_other_sources_are_left_alone(source: Artifact) -> None:
    other = replace(source, format="torchscript")
    assert with_index_bounds(other, other.inputs) == other.inputs
