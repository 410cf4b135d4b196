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
    optimizer.step(distance, part)
    assert np.allclose(np.abs(1 - bias.detach().numpy()), step, rtol=1e-3)
