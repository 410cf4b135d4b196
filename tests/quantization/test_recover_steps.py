"""Steps of training: in which coordinates, and how long they are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from tests.quantization.models import model_of

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(5)


def f(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def test_weights_move_where_their_inputs_are_white() -> None:
    """One step, of a masked row, in coordinates of the inputs that it reads; a bias moves as it is."""
    from convertkit.quantization.recovery.network import Network
    from convertkit.quantization.recovery.optimizer import Optimizer

    x = (RNG.normal(0, 1, (400, 1, 6)) @ RNG.normal(0, 1, (6, 6)) + 3).astype(np.float32)
    weight = f(4, 6)
    weight[1, [0, 3]] = 0
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm", transB=1)]
    model = ir.from_proto(model_of(nodes, {"w": weight, "b": f(4)}, {"x": [1, 6]}, {"y": [1, 4]}))
    network = Network(model, frozenset({("gemm", 1)}))
    optimizer = Optimizer(model, model, network, [{"x": each} for each in x], 0)
    wanted = torch.from_numpy(f(400, 1, 4))
    (got,) = network({"x": torch.from_numpy(x)}, ["y"])
    (got - wanted).square().mean().backward()
    real, bias = (each.real for each in network.weights)
    gradient, before = real.grad.numpy().copy(), real.detach().numpy().copy()
    optimizer.step(1.0, 1.0)
    step = before - real.detach().numpy()
    second = np.matmul(x[:, 0].T, x[:, 0]) / 400
    second += 0.1 * np.trace(second) / 6 * np.eye(6)
    kept = [1, 2, 4, 5]
    factor = np.linalg.cholesky(second[np.ix_(kept, kept)])
    white = np.linalg.solve(factor, gradient[1, kept])
    moved = factor.T @ step[1, kept]
    assert np.allclose(np.abs(moved), np.abs(moved[0]), rtol=1e-2), "Adam's first step is as long in every direction"
    assert (np.sign(moved) == np.sign(white)).all()
    assert not step[1, [0, 3]].any()
    assert bias.grad is None


@pytest.mark.parametrize(
    ("distance", "part", "step"), [(1.0, 1.0, 0.03), (0.25, 1.0, 0.02), (0.25, 0.5, 0.01), (0.5, 0.5, 0.015)]
)
def test_what_is_nearly_right_moves_little(distance: float, part: float, step: float) -> None:
    """A bias of size 1 whose inputs are not known: Adam's first step is the whole rate."""
    from convertkit.quantization.recovery.network import Network
    from convertkit.quantization.recovery.optimizer import Optimizer

    nodes = [helper.make_node("Add", ["x", "b"], ["y"], "bias")]
    model = ir.from_proto(model_of(nodes, {"b": np.ones((1, 4), np.float32)}, {"x": [1, 4]}, {"y": [1, 4]}))
    network = Network(model)
    optimizer = Optimizer(model, model, network, [{"x": f(1, 4)}], 0)
    (got,) = network({"x": torch.from_numpy(f(8, 1, 4))}, ["y"])
    got.square().mean().backward()
    (bias,) = (each.real for each in network.weights)
    optimizer.begin(4.0)
    optimizer.step(distance, part)
    assert np.allclose(np.abs(1 - bias.detach().numpy()), step, rtol=1e-3)


@pytest.mark.parametrize(
    ("steps", "lengths"), [(1, [1.0]), (249, [1.0]), (250, [1.0, 4.0, None]), (401, [1.0, 4.0, 4.0])]
)
def test_steps_of_the_better_length_go_on(steps: int, lengths: list[float | None]) -> None:
    from convertkit.quantization.recovery import training
    from convertkit.quantization.recovery.network import Network
    from convertkit.quantization.recovery.optimizer import Optimizer

    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "gemm", transB=1)]
    weight = f(4, 6)
    models = [
        ir.from_proto(model_of(nodes, {"w": each}, {"x": [1, 6]}, {"y": [1, 4]})) for each in (weight, weight + 0.1)
    ]
    teacher, student = map(Network, models)
    samples = {"x": torch.from_numpy(f(40, 1, 6))}
    begun, starts = [], []

    class Watched(Optimizer):
        def begin(self, boldness: float) -> None:
            begun.append(boldness)
            starts.append(student.weights[0].real.detach().clone())
            super().begin(boldness)

    optimizer = Watched(models[0], models[1], student, [{"x": each.numpy()} for each in samples["x"]], 0)
    with torch.no_grad():
        wanted = teacher(samples, ["y"])[0]
    told = training.train(teacher, student, optimizer, samples, samples, steps, 0)
    assert told.steps == steps
    assert all(one in (other, None) for one, other in zip(lengths, begun, strict=True))
    assert all(torch.equal(each, torch.from_numpy(weight + 0.1)) for each in starts[:2])
    with torch.no_grad():
        left = float((student(samples, ["y"])[0] - wanted).square().mean() / wanted.var(0, correction=0).mean())
    assert left == pytest.approx(min(told.losses), rel=1e-4)
    if steps == 401:
        assert told.losses[-1] < told.losses[8] < told.losses[4] < told.losses[0]
        assert not torch.equal(starts[2], starts[0])


def test_steps_that_leave_no_numbers_are_not_the_better_ones() -> None:
    from convertkit.quantization.recovery import training
    from convertkit.quantization.recovery.network import Network
    from convertkit.quantization.recovery.optimizer import Optimizer

    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "gemm", transB=1)]
    weight = f(4, 6)
    models = [
        ir.from_proto(model_of(nodes, {"w": each}, {"x": [1, 6]}, {"y": [1, 4]})) for each in (weight, 2 * weight)
    ]
    teacher, student = map(Network, models)
    samples = {"x": torch.from_numpy(f(40, 1, 6))}
    begun = []

    class Broken(Optimizer):
        def begin(self, boldness: float) -> None:
            begun.append(boldness)
            super().begin(boldness)

        def step(self, distance: float, part: float) -> None:
            super().step(float("nan") if begun[-1] == 1.0 else distance, part)

    optimizer = Broken(models[0], models[1], student, [{"x": each.numpy()} for each in samples["x"]], 0)
    told = training.train(teacher, student, optimizer, samples, samples, 300, 0)
    assert begun == [1.0, 4.0, 4.0]
    assert told.steps == 300, "what the broken ones did not take is left for the better ones"
    assert told.losses[-1] < 0.1 * told.losses[0]
