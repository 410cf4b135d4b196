"""The arena as it is foretold, beside what TensorFlow Lite Micro itself says; the plan of values on its own."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.errors import ToolError, Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.writer import Signature, write_model
from convertkit.targets.tflite_micro import operators
from convertkit.targets.tflite_micro.arena import measured_arena
from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor, read_graphs
from convertkit.targets.tflite_micro.footprint import foretold_arena
from convertkit.targets.tflite_micro.planner import Buffer, buffers, greedy, height, least
from tests.command_line import here
from tests.targets.micro.micro_packages import network, saved
from tests.targets.micro.test_operators import ONE, written

REAL = (
    "mlperf-kws/reference_int8.tflite",
    "mlperf-ic/pretrainedResnet.tflite",
    "mlperf-ic/pretrainedResnet_quant.tflite",
    "tflm/hello_world_float.tflite",
    "tflm/hello_world_int8.tflite",
    "tflm/micro_speech_quantized.tflite",
    "mnist/trained_lstm.tflite",
    "mnist/trained_lstm_int8.tflite",
    "dtln/model_1.tflite",
    "dtln/model_2.tflite",
)

FEW_BYTES = 256
"""More than a tenth of what one operator takes, about a kilobyte, in which it is mostly read."""


def assert_near(path):
    """Never below, and at most a tenth above, or a few bytes."""
    graphs = read_graphs(path.read_bytes())
    measured, foretold = measured_arena(path, graphs), foretold_arena(graphs)
    assert foretold.head == measured.head
    assert measured.tail <= foretold.tail
    assert measured.size <= foretold.size <= max(1.1 * measured.size, measured.size + FEW_BYTES)


@pytest.mark.nightly
@pytest.mark.parametrize("code", ONE)
def test_an_operator_takes_what_is_foretold(code, tmp_path):
    """For each type, of which the sizes of a kernel's structures may depend."""
    held, refused = [], []
    for dtype in ("float32", "int8", "int16"):
        try:
            written(code, dtype, tmp_path)
            path = tmp_path / f"{code}-{dtype}.tflite"
            operators.check(read_graphs(path.read_bytes()), {})
            assert_near(path)
            held.append(dtype)
        except (Unsupported, ToolError) as error:
            refused.append(str(error))  # not of this type, or with a scale alone
    assert held or all("has no such operator" in each for each in refused), refused


@pytest.mark.parametrize("code", ["CONCATENATION", "BATCH_MATMUL", "MEAN"])
def test_some_operators_take_what_is_foretold(code, tmp_path):
    written(code, "float32", tmp_path)
    assert_near(tmp_path / f"{code}-float32.tflite")


@pytest.mark.nightly
@pytest.mark.parametrize("name", REAL)
def test_real_models_take_what_is_foretold(cases, name):
    assert_near(cases / name)


@pytest.mark.parametrize("rank", [3, 5])
def test_products_of_many_dimensions_take_what_is_foretold(rank, tmp_path):
    program = Program()
    graph = program.subgraphs[program.new_subgraph("main")]
    batch = (1, 2, 3)[: rank - 2]
    graph.inputs = [Tensor("x", (*batch, 6, 4), "float32"), Tensor("y", (*batch, 4, 7), "float32")]
    graph.outputs = [Builder(program, graph).batch_matmul(*graph.inputs)]
    ends = Signature({each.name: each for each in graph.inputs}, {"z": graph.outputs[0]})
    write_model(program, ends, tmp_path / "m.tflite", metadata={}, description="")
    assert_near(tmp_path / "m.tflite")


def test_check_tells_the_arena_and_asks_no_runtime(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.tflite_micro.arena._PROBE", tmp_path / "nothing.py")
    source = saved(network(), tmp_path / "net.onnx")
    said = here("check", source, "--target", "tflite-micro")
    assert said.code == 0
    assert "tflite-micro: the tensor arena takes " in said.out
    said = here("check", source, "--target", "tflite-micro", "--tflite-micro-arena", "2048")
    assert said.code == 1
    assert "--tflite-micro-arena allows 2,048" in said.out


def drawn(seed, count=40):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 30, count)
    spans = zip(first, first + rng.integers(0, 8, count), rng.integers(1, 40, count), strict=True)
    return tuple(Buffer(16 * int(size), int(begin), int(end)) for begin, end, size in spans)


@pytest.mark.parametrize("seed", range(5))
def test_no_two_values_that_are_needed_at_once_overlap(seed):
    wanted = drawn(seed)
    offsets = greedy(wanted)
    for a, (one, at) in enumerate(zip(wanted, offsets, strict=True)):
        for other, place in zip(wanted[:a], offsets[:a], strict=True):
            apart = at + one.size_bytes <= place or place + other.size_bytes <= at
            assert apart or not one.meets(other)
    assert least(wanted) <= height(wanted, offsets) <= sum(each.size_bytes for each in wanted)


def test_what_has_its_place_keeps_it():
    """The greedy plan fills the gaps that an offline plan leaves."""
    wanted = (Buffer(32, 0, 9, offset=64), Buffer(64, 0, 5), Buffer(16, 3, 9), Buffer(48, 6, 9))
    assert greedy(wanted) == (64, 0, 96, 0)
    assert height(wanted, greedy(wanted)) == 112


def test_the_largest_comes_first_and_of_equals_the_last():
    wanted = (Buffer(16, 0, 2), Buffer(16, 1, 3), Buffer(48, 2, 4))
    assert greedy(wanted) == (64, 48, 0)
    assert greedy((Buffer(16, 0, 1), Buffer(16, 0, 1))) == (16, 0)


def value(*shape, dtype="float32", constant=False, variable=False):
    return FileTensor("t", dtype, shape, constant, variable, 0, 0.0, 0, False)


def test_a_value_lives_from_its_operator_to_its_last_reader():
    tensors = (value(4), value(4), value(4), value(4, constant=True), value(8, variable=True))
    graph = FileGraph(
        tensors, (FileOperator("ADD", (0, 3), (1,)), FileOperator("MUL", (1, 4), (2,))), inputs=(0,), outputs=(2,)
    )
    assert [(each.first, each.last) for each in buffers((graph,))] == [(0, 1), (1, 2), (2, 2)]


def test_a_loop_s_values_live_inside_of_it():
    inner = FileGraph((value(4), value(4)), (FileOperator("NEG", (0,), (1,)),), (0,), (1,))
    outer = FileGraph(
        (value(4), value(4), value(4)),
        (FileOperator("WHILE", (0,), (1,), (1, 2)), FileOperator("MEAN", (1, 1), (2,))),
        (0,),
        (2,),
    )
    found = buffers((outer, inner, inner))
    times = {each.tensor: (each.first, each.last) for each in found if each.tensor is not None}
    assert times[(0, 0)] == (0, 5), "what a loop reads stays until its body has run"
    assert times[(1, 0)] == (2, 3)
    assert times[(2, 1)] == (5, 5)
    assert [(each.first, each.last, each.size_bytes) for each in found if each.tensor is None] == [(6, 6, 16)] * 2
