"""Where samples may be moved, and that they are moved by what is said."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

torch = pytest.importorskip("torch")

from convertkit.quantization.recovery import batches, training  # noqa: E402
from convertkit.quantization.recovery.network import Network  # noqa: E402
from convertkit.quantization.recovery.shifts import moved, shifts, steady  # noqa: E402
from tests.quantization.models import model_of  # noqa: E402


def graph_of(nodes, shape, weights, dtype=1):
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", dtype, shape)], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    import onnx

    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model)).graph


def node(op, *inputs, out="y", **attributes):
    return helper.make_node(op, list(inputs), [out], op.lower(), **attributes)


W = np.ones((4, 3, 3, 5), np.float32)
ROWS = {
    "space": ([node("Conv", "x", "w")], (1, 3, 24, 47), {"w": W}, ((2, 2), (3, 5))),
    "normalised": (
        [node("Mul", "s", "x", out="a"), node("Conv", "a", "w")],
        (1, 3, 24, 47), {"w": W, "s": np.float32(2)}, ((2, 2), (3, 5)),
    ),
    "channels last": (
        [node("Transpose", "x", out="a", perm=[0, 3, 1, 2]), node("Conv", "a", "w")],
        (1, 24, 47, 3), {"w": W}, ((1, 2), (2, 5)),
    ),
    "one more axis": (
        [node("Reshape", "x", "n", out="a"), node("Conv", "a", "w")],
        (1, 49, 20), {"w": W[:, :1], "n": np.array([1, 1, 49, 20])}, ((1, 5), (2, 2)),
    ),
    "along time alone": ([node("Conv", "x", "w")], (1, 3, 60, 30), {"w": W[:, :, :, :1]}, ((2, 6),)),
    "pooling": ([node("MaxPool", "x", kernel_shape=[2, 2])], (1, 3, 24, 47), {}, ((2, 2), (3, 5))),
    "too short": ([node("Conv", "x", "w")], (1, 3, 4, 47), {"w": W}, ((3, 5),)),
    "no window": ([node("MatMul", "x", "w")], (1, 30), {"w": np.ones((30, 2), np.float32)}, None),
    "other elements": (
        [node("Reshape", "x", "n", out="a"), node("Conv", "a", "w")],
        (1, 1470, 2), {"w": W, "n": np.array([1, 3, 49, 20])}, None,
    ),
    "read twice": (
        [node("Conv", "x", "w", out="a"), node("Shape", "x", out="b"), node("Reshape", "a", "b")],
        (1, 3, 24, 47), {"w": W}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_the_graph_tells_which_axes_windows_slide_over(name):
    nodes, shape, weights, expected = ROWS[name]
    assert shifts(graph_of(nodes, shape, weights)) == ({} if expected is None else {"x": expected})


def test_integers_stay():
    nodes = [node("Cast", "x", out="a", to=1), node("Conv", "a", "w")]
    assert shifts(graph_of(nodes, (1, 3, 24, 47), {"w": W}, dtype=7)) == {}


def test_every_sample_is_moved_by_itself_and_edges_repeat():
    samples = torch.arange(2.0 * 400 * 9).reshape(400, 1, 9, 2)
    found = moved(samples, ((1, 2),), torch.Generator().manual_seed(0))
    steps = set()
    for one, other in zip(samples, found, strict=True):
        fits = [
            step for step in range(-2, 3)
            if torch.equal(other, one[:, (torch.arange(9) - step).clamp(0, 8)])
        ]  # fmt: skip
        assert len(fits) == 1
        steps |= set(fits)
    assert steps == {-2, -1, 0, 1, 2}
    assert torch.equal(moved(samples, (), torch.Generator()), samples)


def coefficients(count=60):
    """Sounds, (samples, 1, time, coefficients): alike at all times, while every coefficient has a mean of its own."""
    random = np.random.default_rng(3)
    means = np.array([-60.0, 20, -3, 11, -7, 4])
    return torch.from_numpy((means + random.normal(size=(count, 1, 30, 6))).astype(np.float32))


def test_sounds_move_in_time_and_not_from_one_coefficient_to_the_next():
    movable = {"x": ((1, 3), (2, 1))}
    assert steady(movable, {"x": coefficients()}) == {"x": ((1, 3),)}


def test_samples_move_as_far_as_their_mean_stays_much_what_it_is():
    ramp = torch.arange(20.0).reshape(1, 1, 20, 1).expand(80, 1, 20, 3)
    noise = torch.from_numpy(np.random.default_rng(5).normal(size=(80, 1, 20, 3)).astype(np.float32))
    assert steady({"x": ((1, 2), (2, 1))}, {"x": 0.2 * ramp + noise}) == {"x": ((1, 2), (2, 1))}
    assert steady({"x": ((1, 2), (2, 1))}, {"x": 0.4 * ramp + noise}) == {"x": ((1, 1), (2, 1))}
    assert steady({"x": ((1, 2),)}, {"x": ramp + noise}) == {}


def test_training_moves_samples_no_farther_than_that(monkeypatch):
    """The graph alone would move these along both axes, of which every place has another mean."""
    conv = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])
    proto = model_of([conv], {"w": W[:2, :1, :, :3]}, {"x": [1, 1, 30, 30]}, {"y": [1, 2, 30, 30]})
    teacher, student = (Network(ir.from_proto(proto)) for _ in range(2))
    assert shifts(teacher.graph)
    alike = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1, 1, 30, 30)).astype(np.float32))
    samples = {"x": alike.expand(8, 1, 1, 30, 30)}
    found = []
    monkeypatch.setattr(batches, "moved", lambda value, axes, _: found.append(axes) or value)
    training.train(
        teacher, student, SimpleNamespace(begin=lambda _: None, step=lambda *_: None), samples, samples, 2, 0
    )
    assert not any(found)
