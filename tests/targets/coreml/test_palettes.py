"""Weights as places in a table: which values it has, what the package stores, and that MIL reads it as we do."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx.helper import make_node

import convertkit
from convertkit.errors import Unsupported, UsageError
from convertkit.targets.coreml.options import TARGETS, Choices
from convertkit.targets.coreml.package.program import Operation, read_package
from convertkit.targets.coreml.palettes import in_table, palette_of, places_in, table_of
from convertkit.workers.process import Worker
from tests import onnx_models
from tests.targets.coreml.apple_packages import compile_text, numbers

BITS = (2, 4, 6, 8)
SYSTEMS = ("iOS16", "iOS17", "iOS18")
FOUR = {"coreml": {"palette": "4"}}


def squares(array: np.ndarray, table: np.ndarray) -> float:
    return float(((array - in_table(array, table)) ** 2).sum())


def test_the_table_of_few_numbers_is_the_best_one():
    """Against every way to cut sorted numbers into three."""
    for seed in range(20):
        array = np.sort(numbers(9, seed=seed).astype(np.float64))
        cuts = itertools.combinations(range(1, 9), 2)
        best = min(sum(((part - part.mean()) ** 2).sum() for part in np.split(array, cut)) for cut in cuts)
        assert squares(array, table_of(array, 3)) == pytest.approx(best)


@pytest.mark.parametrize("bits", BITS)
def test_a_table_leaves_less_noise_than_even_steps(bits):
    array = numbers(70, 90, seed=bits)
    table = table_of(array, 2**bits)
    assert table.size == 2**bits
    assert np.all(np.diff(table) > 0)
    assert np.isin(in_table(array, table), table).all()
    even = np.linspace(array.min(), array.max(), 2**bits, dtype=np.float32)
    assert squares(array, table) < 0.7 * squares(array, even)


def test_few_values_stay_as_they_are():
    array = np.float16([3, -1, 0.5, 3, 3, -1])
    assert table_of(array, 4).tolist() == [-1, 0.5, 3]
    assert places_in(array, table_of(array, 4)).tolist() == [2, 0, 1, 2, 2, 0]


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_long_weight_has_its_values_once(kind):
    """NumPy 2.4.6 finds 114 values where 64 are, on some processors."""
    values = np.sort(numbers(64)).astype(kind)
    weight = values[np.random.default_rng(0).integers(0, 64, 409_600)]
    assert np.array_equal(palette_of(weight, 6), values)
    assert palette_of(weight, 4) is None


GRAPHS = {
    "conv": ("float[1,5,6,7] x", "float[1,9,4,5] y", "y = Conv(x, w)", (9, 5, 3, 3), "conv"),
    "transposed": ("float[1,9,4,5] x", "float[1,5,6,7] y", "y = ConvTranspose(x, w)", (9, 5, 3, 3), "conv_transpose"),
    "gemm": ("float[3,16] x", "float[3,24] y", "y = Gemm<transB=1>(x, w)", (24, 16), "linear"),
    "product": ("float[2,3,16] x", "float[2,3,24] y", "y = MatMul(x, w)", (16, 24), "linear"),
    "turned": ("float[2,16,3] x", "float[2,24,3] y", "y = MatMul(w, x)", (24, 16), "matmul"),
    "looked up": ("int64[5] x", "float[5,16] y", "y = Gather(w, x)", (24, 16), "gather"),
}


def tables_of(package: Path) -> list[Operation]:
    return [each for each in read_package(package).block.operations if each.type == "constexpr_lut_to_dense"]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("graph", "bits"), [*((graph, 4) for graph in GRAPHS), ("conv", 2)])
def test_each_kind_of_weight(graph, bits, system, worker: Worker, tmp_path: Path):
    inputs, outputs, body, shape, operation = GRAPHS[graph]
    weight = numbers(*shape)
    given = in_table(weight, table_of(weight, 2**bits))
    chosen = replace(Choices(TARGETS[system]), palette=bits)
    made = compile_text(worker, f"test ({inputs}) => ({outputs}) {{ {body} }}", tmp_path / "c", chosen, w=given)
    (table,) = tables_of(made.artifact.path)
    (reader,) = (each for each in made.program.block.operations if each.type == operation)
    assert table.outputs[0][0] in [name for group in reader.inputs.values() for name in group]
    feed = np.int64([0, 23, 4, 7, 4]) if graph == "looked up" else numbers(*made.source.inputs[0].shape)
    made.agree({"x": feed})


@pytest.fixture(scope="module")
def plain_bytes(digits, tmp_path_factory) -> int:
    """Of the package without tables."""
    return convertkit.export(
        digits.model, "coreml", output=tmp_path_factory.mktemp("plain") / "out"
    ).artifact.size_bytes


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("bits", [4, 6, 8])
def test_the_file_holds_so_many_bits(bits, system, digits, plain_bytes, tmp_path):
    """And the export has verified it, the evaluator reading the table back from the bytes."""
    options = {"coreml": {"palette": str(bits), "deployment-target": system}}
    made = convertkit.export(digits.model, "coreml", output=tmp_path / "out", seed=3, target_options=options)
    tables = tables_of(tmp_path / "out" / "model.mlpackage")
    count = sum(math.prod(table.outputs[0][1].shape) for table in tables)
    assert count > 10_000
    saved = count * (4 - bits / 8) - len(tables) * 4 * 2**bits
    assert abs(plain_bytes - made.artifact.size_bytes - saved) < 1000 * len(tables)
    assert any(f"tables of {bits} bits: {len(tables)} of them" in note for note in made.report["notes"])


def test_the_same_bytes_twice(digits, tmp_path):
    for place in ("a", "b"):
        convertkit.export(digits.model, "coreml", output=tmp_path / place, fp16=True, target_options=FOUR)
    files = [sorted((tmp_path / place / "model.mlpackage").rglob("*")) for place in ("a", "b")]
    assert len(files[0]) == len(files[1]) > 4
    for first, second in zip(*files, strict=True):
        assert first.is_dir() or first.read_bytes() == second.read_bytes()


def test_what_is_refused(digits, tmp_path):
    with pytest.raises(UsageError, match="goes without a precision or with --fp16: --w8 stores"):
        convertkit.export(digits.model, "coreml", output=tmp_path / "out", w8=True, target_options=FOUR)
    small = onnx_models.write(tmp_path, onnx_models.model([make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3]}))
    with pytest.raises(Unsupported, match="no weight of a convolution, product or look-up has the 128 numbers"):
        convertkit.export(small, "coreml", output=tmp_path / "out", target_options=FOUR)
    assert not (tmp_path / "out").exists()
