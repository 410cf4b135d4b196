"""Recovery: the graph in PyTorch computes what ONNX Runtime does, and training gains or is undone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.artifact import Artifact
from convertkit.data.feeds import load_feeds
from convertkit.errors import ParityError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.onnx.walk import check, walk
from convertkit.quantization import prune
from convertkit.quantization.graph.replay import open_session
from convertkit.quantization.graph.sparse import mark_pruned, pruned, sparse
from convertkit.quantization.graph.step import LossyStep
from convertkit.quantization.recovery.stage import Recovered, keeps_classes, mixed
from convertkit.quantization.search.quality import Quality
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from tests.quantization.models import artifact_of, images, model_of, small_cnn

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


@dataclass(frozen=True)
class Row:
    """A node on a sample of ``shape``, with constants behind it."""

    op: str
    shape: tuple[int, ...] = (1, 4, 6, 5)
    constants: tuple[object, ...] = ()
    attributes: tuple[tuple[str, object], ...] = ()
    outputs: int = 1

    def __str__(self) -> str:
        return f"{self.op} {self.shape} {self.attributes}"


def row(op: str, *constants: object, shape: tuple[int, ...] = (1, 4, 6, 5), outputs: int = 1, **attributes: object):
    return Row(op, shape, constants, tuple(attributes.items()), outputs)


def f(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def recurrent(gates: int, directions: int = 1) -> tuple[np.ndarray, ...]:
    """Weights and biases of a layer with 3 hidden units, for inputs of 5."""
    return f(directions, 3 * gates, 5), f(directions, 3 * gates, 3), f(directions, 6 * gates)


SERIES = (6, 2, 5)
LENGTHS = np.array([6, 4], np.int32)
VECTOR = np.abs(f(4)) + 0.5
ROWS = [
    row("Conv", f(6, 4, 3, 2), f(6), pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    row("Conv", f(8, 2, 3, 3), group=2), row("Conv", f(4, 1, 3, 3), group=4, pads=[1, 1, 1, 1]),
    row("Conv", f(3, 4, 3), f(3), shape=(1, 4, 7)),
    row("ConvTranspose", f(4, 3, 3, 2), f(6), strides=[2, 2], pads=[1, 0, 0, 1], group=2, output_padding=[1, 0]),
    row("Gemm", f(7, 5), f(7), shape=(3, 5), transB=1, alpha=0.5, beta=2.0),
    row("MatMul", f(5, 3)), row("Add", f(4, 1, 1)), row("Sub", f(5)), row("Mul", f(6, 1)), row("Div", f(5) + 3),
    row("Max", f(5)), row("Min", f(5)), row("Neg"), row("Abs"), row("Exp"), row("Erf"), row("Tanh"), row("Sigmoid"),
    row("Identity"), row("Relu"), row("Softplus"), row("Mish"), row("HardSwish"), row("Sin"), row("Cos"),
    row("LeakyRelu", alpha=0.2), row("Elu", alpha=0.7), row("HardSigmoid", alpha=0.3, beta=0.4),
    row("PRelu", f(4, 1, 1)),
    row("Gelu"), row("Gelu", approximate="tanh"), row("Clip", np.float32(-0.5), np.float32(0.8)),
    row("BatchNormalization", VECTOR, f(4), f(4), VECTOR, epsilon=1e-3),
    row("LayerNormalization", f(6, 5), f(6, 5), axis=2, epsilon=1e-3), row("InstanceNormalization", f(4), f(4)),
    row("Softmax", axis=1), row("LogSoftmax", axis=1),
    row("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    row("AveragePool", kernel_shape=[3, 2], strides=[1, 2], pads=[1, 0, 1, 1]),
    row("AveragePool", kernel_shape=[3, 2], pads=[1, 1, 1, 1], count_include_pad=1),
    row("Conv", f(6, 4, 3, 2), auto_pad="NOTSET"), row("MaxPool", kernel_shape=[3, 2], auto_pad="NOTSET"),
    row("AveragePool", kernel_shape=[3, 2], auto_pad="NOTSET", ceil_mode=0, count_include_pad=0),
    row("GlobalAveragePool"), row("GlobalMaxPool"), row("Reshape", i(0, 2, -1)), row("Flatten", axis=2),
    row("Squeeze", i(0)), row("Unsqueeze", i(1, -1)), row("Transpose", perm=[0, 3, 1, 2]), row("Transpose"),
    row("Concat", f(1, 4, 6, 2), axis=3), row("Slice", i(1, -2), i(9, 0), i(3, 2), i(2, -1)),
    row("Slice", i(1), i(-1), i(2)), row("Split", i(1, 3), axis=1, outputs=2),
    row("Split", axis=2, num_outputs=2, outputs=2), row("Pad", i(0, 1, 2, 0, 0, 0, 1, 2), np.float32(1.5)),
    row("Pad", i(0, 0, 2, 1, 0, 0, 1, 2), mode="reflect"), row("Pad", i(1, 2), mode="edge", shape=(6,)),
    row("Gather", i(2, -1, 0), axis=1), row("Gather", i(3), axis=2), row("Expand", i(3, 1, 6, 1)),
    row("ReduceMean", i(2, 3), keepdims=0), row("ReduceSum", i(-1)), row("ReduceMax"), row("ReduceMin", i(1)),
    row("QuantizeLinear", np.float32(0.02), np.uint8(120)), row("Pow", np.float32(2)), row("Reciprocal"),
    row("LSTM", *recurrent(4), shape=SERIES, outputs=3, hidden_size=3),
    row("LSTM", *recurrent(4, 2), shape=SERIES, outputs=3, hidden_size=3, direction="bidirectional"),
    row("LSTM", *recurrent(4, 2), LENGTHS, f(2, 2, 3), f(2, 2, 3), f(2, 9), shape=SERIES, outputs=3, hidden_size=3,
        direction="bidirectional"),
    row("LSTM", *recurrent(4), shape=SERIES, outputs=3, hidden_size=3, direction="reverse", input_forget=1, clip=0.4),
    row("LSTM", *recurrent(4)[:2], shape=SERIES, outputs=3, hidden_size=3, activation_alpha=[0.3],
        activation_beta=[0.4], activations=["HardSigmoid", "Softsign", "Relu"]),
    row("GRU", *recurrent(3), shape=SERIES, outputs=2, hidden_size=3),
    row("GRU", *recurrent(3, 2), LENGTHS, f(2, 2, 3), shape=SERIES, outputs=2, hidden_size=3, linear_before_reset=1,
        direction="bidirectional"),
    row("GRU", *recurrent(3), LENGTHS, shape=SERIES, outputs=2, hidden_size=3, direction="reverse", clip=0.5),
    row("GRU", *recurrent(3), shape=SERIES, outputs=2, hidden_size=3, activations=["HardSigmoid", "LeakyRelu"],
        activation_alpha=[0.3, 0.2], activation_beta=[0.4]),
    row("RNN", *recurrent(1), shape=SERIES, outputs=2, hidden_size=3, activations=["Elu"], activation_alpha=[0.7]),
    row("RNN", *recurrent(1), shape=SERIES, outputs=2, hidden_size=3),
    row("RNN", *recurrent(1, 2), LENGTHS, shape=SERIES, outputs=2, hidden_size=3, direction="bidirectional",
        activations=["Relu", "Softplus"]),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_every_operator_computes_what_onnx_runtime_does(case: Row) -> None:
    from convertkit.torch_graph.operators import TABLE

    names = [f"c{index}" for index in range(len(case.constants))]
    outputs = [f"y{index}" for index in range(case.outputs)]
    nodes = [helper.make_node(case.op, ["x", *names], outputs, "node", **dict(case.attributes))]
    constants = dict(zip(names, map(np.asarray, case.constants), strict=True))
    proto = model_of(nodes, constants, {"x": list(case.shape)}, dict.fromkeys(outputs), opset=20)
    if case.op == "QuantizeLinear":
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    x = f(3, *case.shape)
    session = open_session(ir.from_proto(proto))

    graph = ir.from_proto(proto).graph
    check(graph, TABLE, "the test")
    given = {
        value: torch.from_numpy(np.array(value.const_value.numpy())) for value in graph.initializers.values()
    }  # fmt: skip

    def one(sample):
        found = walk(graph, TABLE, {**given, graph.inputs[0]: sample})
        return tuple(found[value] for value in graph.outputs)

    got = torch.vmap(one)(torch.from_numpy(x))
    for index, sample in enumerate(x):
        for want, value in zip(session.run(None, {"x": sample}), got, strict=True):
            assert value[index].shape == want.shape
            assert np.allclose(value[index].numpy(), want, atol=2e-5, rtol=1e-4)


def test_the_network_computes_what_onnx_runtime_does() -> None:
    from convertkit.quantization.recovery.network import Network

    model = canonicalize(ir.from_proto(small_cnn()))
    network = Network(model)
    x = images(3)[:, None]
    with torch.no_grad():
        (got,) = network({"x": torch.from_numpy(x)}, ["y"])
    session = open_session(model)
    for sample, value in zip(x, got.numpy(), strict=True):
        assert np.allclose(session.run(None, {"x": sample})[0], value, atol=1e-4)


def stored(bits: int) -> onnx.ModelProto:
    """A Gemm with 8- or 4-bit weights between integers, as the quantizer writes it."""
    kind = {8: onnx.TensorProto.INT8, 4: onnx.TensorProto.INT4}[bits]
    limit = 2 ** (bits - 1) - 1
    weight = RNG.integers(-limit, limit + 1, (6, 8))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["d"], "dequantize"),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["dw"], "weight", axis=0),
        helper.make_node("Gemm", ["d", "dw"], ["y"], "gemm", transB=1),
    ]
    constants = {"sx": np.float32(0.02), "zx": np.uint8(100), "sw": np.abs(f(6)) / limit}
    proto = model_of(nodes, constants, {"x": [1, 8]}, {"y": [1, 6]}, opset=21)
    proto.ir_version = 10
    proto.graph.initializer.append(helper.make_tensor("w", kind, (6, 8), weight.ravel()))
    return proto


@pytest.mark.parametrize("bits", [8, 4])
def test_fake_quantization_is_what_the_graph_computes(bits: int) -> None:
    from convertkit.quantization.recovery.network import Network

    model = ir.from_proto(stored(bits))
    network = Network(model)
    (weight,) = network.weights
    before = model.graph.initializers["w"].const_value.numpy().astype(np.int32)
    assert np.array_equal(weight.array(), before)
    x = f(4, 1, 8)
    (got,) = network({"x": torch.from_numpy(x)}, ["y"])
    session = open_session(model)
    for sample, value in zip(x, got.detach().numpy(), strict=True):
        assert np.allclose(session.run(None, {"x": sample})[0], value, atol=1e-4)
    got.sum().backward()
    assert weight.real.grad.abs().sum() > 0, "gradients pass the rounding"
    with torch.no_grad():
        weight.real.add_(100)
    assert weight.array().max() == 2 ** (bits - 1) - 1


def test_what_no_function_takes_is_refused() -> None:
    from convertkit.quantization.recovery.network import Network

    proto = model_of([helper.make_node("Selu", ["x"], ["y"], "odd")], {}, {"x": [1, 4]}, {"y": [1, 4]})
    with pytest.raises(Unsupported, match="knows no such operator"):
        Network(ir.from_proto(proto))


def test_a_written_default_is_taken_and_anything_else_refused() -> None:
    from convertkit.torch_graph.operators import TABLE

    for mode in ("NOTSET", "SAME_UPPER"):
        node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", auto_pad=mode)
        graph = ir.from_proto(model_of([node], {"w": f(2, 3, 3, 3)}, {"x": [1, 3, 5, 5]}, {"y": None})).graph
        if mode == "NOTSET":
            check(graph, TABLE, "--recover")
        else:
            with pytest.raises(Unsupported, match="unexpected keyword argument 'auto_pad'"):
                check(graph, TABLE, "--recover")


class Damaged(LossyStep):
    """A step that sets 0.4 of all weights to zero, as pruning does, and adds noise to the others."""

    name = "damaged"
    options = {}  # noqa: RUF012 - as a stage declares it

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model, random = load_model(source.path), np.random.default_rng(1)
        for name, value in model.graph.initializers.items():
            array = value.const_value.numpy()
            if array.ndim > 1:
                noisy = array + 0.3 * array.std() * random.normal(0, 1, array.shape)
                kept = (noisy * (random.random(array.shape) < 0.6)).astype(np.float32)
                value.const_value = ir.Tensor(kept, name=name)
                for use in value.uses():
                    mark_pruned(use.node, use.idx)
        return save_model(model, workdir / "damaged.onnx", "test")


def test_a_damaged_model_learns_its_answers_again(tmp_path: Path) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    feeds = load_feeds(images(96), source.inputs)
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        stage = Recovered(Damaged(), 0.03, feeds, 0)
        made.append(stage.run(source, folder))
    told = stage.diagnosis["recovered"]
    assert told["kept"]
    assert min(told["losses"]) < 0.2 * told["losses"][0]
    assert made[0].path.read_bytes() == made[1].path.read_bytes()
    plain = Damaged().run(source, tmp_path)
    assert level(source, made[0]) > level(source, plain) + 6
    weights, trained = (load_model(each.path).graph.initializers for each in (plain, made[0]))
    pairs = [(weights[name].const_value.numpy(), value.const_value.numpy()) for name, value in trained.items()]
    large = [(before, after) for before, after in pairs if before.ndim > 1]
    assert large
    assert all(not after[before == 0].any() for before, after in large)
    assert any((after != before).any() for before, after in large)


def small_lstm() -> onnx.ModelProto:
    """An LSTM of 12 units without one of its biases over 8 steps, the last state into a Gemm."""
    random = np.random.default_rng(5)  # its own: how much can be learnt again depends on the weights
    w, r, first, g = (random.normal(0, 1, shape).astype("f4") for shape in ((1, 48, 6), (1, 48, 12), (1, 48), (12, 4)))
    w, r, b = 0.5 * w, 0.3 * r, np.concatenate([first, np.zeros((1, 48), np.float32)], 1)
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "h"], "lstm", hidden_size=12),
        helper.make_node("Squeeze", ["h", "first"], ["s"], "squeeze"),
        helper.make_node("Gemm", ["s", "g"], ["y"], "gemm"),
    ]
    constants = {"w": w, "r": r, "b": b, "g": g, "first": i(0)}
    return model_of(nodes, constants, {"x": [8, 1, 6]}, {"y": [1, 4]})


def test_a_damaged_recurrent_layer_learns_its_answers_again(tmp_path: Path) -> None:
    source = artifact_of(small_lstm(), tmp_path)
    feeds = load_feeds({"x": np.random.default_rng(3).normal(0, 1, (64, 8, 1, 6)).astype(np.float32)}, source.inputs)
    stage = Recovered(Damaged(), 0.04, feeds, 0)
    made = stage.run(source, tmp_path)
    told = stage.diagnosis["recovered"]
    assert told["kept"]
    assert min(told["losses"]) < 0.3 * told["losses"][0]
    before, after = (load_model(path).graph.initializers for path in (tmp_path / "damaged.onnx", made.path))
    for name in ("w", "r"):
        damaged, trained = before[name].const_value.numpy(), after[name].const_value.numpy()
        assert (damaged != trained).any()
        assert not trained[damaged == 0].any()


def test_zeros_of_a_recurrent_bias_are_trained() -> None:
    from convertkit.quantization.recovery.network import Network

    network = Network(ir.from_proto(small_lstm()), frozenset({("lstm", 3)}))
    assert {weight.stored.name: weight.mask for weight in network.weights} == dict.fromkeys(("w", "r", "b", "g"))


def test_zeros_that_no_pruning_made_are_trained() -> None:
    from convertkit.quantization.recovery.network import Network

    model = ir.from_proto(small_lstm())
    nodes = {node.name: node for node in model.graph}
    for name, share in (("w", 0.2), ("r", 0.2), ("g", 0.1)):
        value = model.graph.initializers[name]
        array = value.const_value.numpy().copy()
        array.ravel()[: int(array.size * share)] = 0
        value.const_value = ir.Tensor(array, name=name)
    mark_pruned(nodes["lstm"], 2)
    assert pruned(model.graph) == {("lstm", 2)}
    masks = {weight.stored.name: weight.mask for weight in Network(model, pruned(model.graph)).weights}
    assert masks["w"] is None
    assert masks["g"] is None
    assert float(masks["r"].mean()) == pytest.approx(0.8, abs=0.01)


def test_a_sparse_source_stays_sparse(tmp_path: Path) -> None:
    plain = artifact_of(small_cnn(), tmp_path)
    assert not sparse(load_model(plain.path).graph)
    source = Damaged().run(plain, tmp_path)
    assert len(sparse(load_model(source.path).graph)) == 4
    (tmp_path / "trained").mkdir()
    made = Recovered(Noisy(), 0.02, load_feeds(images(96), source.inputs), 0).run(source, tmp_path / "trained")
    before, after = (load_model(path).graph.initializers for path in (source.path, made.path))
    assert made.path.name == "recovered.onnx"
    for name, value in before.items():
        array = value.const_value.numpy()
        assert array.ndim == 1 or not after[name].const_value.numpy()[array == 0].any()


def test_the_flag_puts_training_behind_the_step() -> None:
    feeds = object()
    context = BuildContext(ExportOptions("x", prune="0.8", recover=2.0), None, calibration=feeds)  # type: ignore[arg-type]
    stage = prune.stage(context)
    assert isinstance(stage, Recovered)
    assert (stage.minutes, stage.name) == (2.0, "prune")


def level(source: Artifact, result: Artifact) -> float:
    with OnnxRunner(source) as one, OnnxRunner(result) as other:
        pairs = [(one.run({"x": each[None]})["y"], other.run({"x": each[None]})["y"]) for each in images(40, 9)]
    before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return float(10 * np.log10(np.square(before - before.mean(0)).sum() / np.square(after - before).sum()))


class Noisy(LossyStep):
    """A step that adds noise to what is not zero."""

    name = "noisy"
    options = {}  # noqa: RUF012 - as a stage declares it

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model, random = load_model(source.path), np.random.default_rng(2)
        for name, value in model.graph.initializers.items():
            array = value.const_value.numpy()
            if array.ndim > 1:
                noisy = array * random.normal(1, 0.5, array.shape)
                value.const_value = ir.Tensor(noisy.astype(np.float32), name=name)
        return save_model(model, workdir / "noisy.onnx", "test")


class Unchanged(LossyStep):
    """A step after which there is nothing to gain."""

    name = "unchanged"
    options = {}  # noqa: RUF012 - as a stage declares it

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        return save_model(load_model(source.path), workdir / "same.onnx", "test")


def test_what_training_does_not_better_stays(tmp_path: Path) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    feeds = load_feeds(images(40), source.inputs)
    stage = Recovered(Unchanged(), 0.002, feeds, 0)
    result = stage.run(source, tmp_path)
    assert result.path.name == "same.onnx"
    assert not stage.diagnosis["recovered"]["kept"]
    assert "was undone" in stage.diagnosis["notes"][-1]


def quality(agreement: float | None, db: float = 20.0, samples: int = 200) -> Quality:
    return Quality(samples, db, db, db, db, agreement, None if agreement is None else 0.0)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (quality(0.90), quality(0.95), True),
        (quality(0.90), quality(0.87), True),
        (quality(0.90), quality(0.84), False),
        (quality(0.995), quality(0.97), False),
        (quality(None, 20.0), quality(None, 20.1), True),
        (quality(None, 20.0), quality(None, 19.9), False),
    ],
)
def test_a_few_samples_that_change_sides_do_not_undo_what_training_gained(
    before: Quality, after: Quality, kept: bool
) -> None:
    assert keeps_classes(before, after) is kept


def is_between(point: np.ndarray, one: np.ndarray, other: np.ndarray) -> bool:
    way = one - other
    share = float(((point - other) * way).sum() / max(float(np.square(way).sum()), 1e-12))
    return bool(np.allclose(point, other + share * way, atol=1e-6))


def test_more_samples_to_judge_by_are_mixed() -> None:
    feeds = [{"x": f(1, 3), "y": f(2)} for _ in range(5)]
    made = mixed(feeds, 0)
    assert len(made) == 15
    assert all(each["x"].dtype == np.float32 for each in made)
    assert all(
        any(is_between(each["x"], one["x"], other["x"]) for other in feeds)
        for one, each in zip(feeds * 3, made, strict=True)
    )
    assert not mixed([{"x": i(1, 2)}, {"x": i(3, 4)}], 0)
    assert not mixed([{"x": f(1, 3)}, {"x": f(1, 4)}], 0)


@pytest.mark.parametrize(("steps", "held_out", "every"), [(4000, 50, 200), (4000, 256, 200), (20, 256, 10), (3, 8, 1)])
def test_judging_costs_a_share_of_training(steps: int, held_out: int, every: int) -> None:
    from convertkit.quantization.recovery import training

    assert training._every(steps, held_out) == every


def test_too_few_samples_are_refused(tmp_path: Path) -> None:
    source = artifact_of(small_cnn(), tmp_path)
    stage = Recovered(Unchanged(), 1.0, load_feeds(images(12), source.inputs), 0)
    with pytest.raises(Unsupported, match="needs 16"):
        stage.run(source, tmp_path)


class Wrecked(Damaged):
    """All weights zero but a few: no training brings that back."""

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = load_model(source.path)
        for name, value in model.graph.initializers.items():
            array = value.const_value.numpy().copy()
            if array.ndim > 1:
                array.ravel()[1:] = 0
                value.const_value = ir.Tensor(array, name=name)
                for use in value.uses():
                    mark_pruned(use.node, use.idx)
        return save_model(model, workdir / "wrecked.onnx", "test")


def test_what_keeps_too_little_is_judged_behind_the_training(tmp_path: Path) -> None:
    """Integers that ruin a model may be trained; what is left of it is refused where that is too little."""
    source, options = artifact_of(small_cnn(), tmp_path), ExportOptions("x", precision="int8", recover=0.03)
    feeds = load_feeds(images(96), source.inputs)
    with pytest.raises(ParityError, match=r"--int8 keeps -?\d+\.\d dB .* below 10 dB nothing is delivered"):
        Recovered(Wrecked(), 0.002, feeds, 0, judged=options).run(source, tmp_path)
    stage = Recovered(Damaged(), 0.03, feeds, 0, judged=options)
    stage.run(source, tmp_path)
    assert stage.diagnosis["recovered"]["before"]["snr_db"] < 10 < stage.diagnosis["recovered"]["after"]["snr_db"]
