"""Samples made of others: what may become of them, and what may not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from convertkit.quantization.recovery import blends  # noqa: E402
from convertkit.quantization.recovery.blends import blended, cut, scattered  # noqa: E402


def random():
    return torch.Generator().manual_seed(3)


def stretches(found, axis):
    """For each sample, which places along this axis of it are another's: (samples, places)."""
    return found.movedim(axis + 1, 1).flatten(2).mean(2)


@pytest.mark.parametrize(("sliding", "expected"), [(((1, 1), (2, 1)), {1, 2}), (((2, 1),), {2}), ((), {1})])
def test_one_stretch_along_one_axis_is_the_others(sliding, expected):
    """Without an axis that windows slide along, it is the longest."""
    shape = (200, 2, 9, 7)
    found = cut({"x": (torch.zeros(shape), torch.ones(shape))}, {"x": sliding} if sliding else {}, random())["x"]
    axes = set()
    for one in found:
        if 0 < float(one.mean()) < 1:
            (axis,) = (each for each in range(3) if set(stretches(one[None], each)[0].tolist()) == {0.0, 1.0})
            line = stretches(one[None], axis)[0]
            assert int(line.diff().abs().sum()) <= 2
            axes.add(axis)
    assert axes == expected
    shares = found.mean((1, 2, 3))
    assert float(shares.min()) < 0.1
    assert float(shares.max()) > 0.9


def test_the_same_share_of_all_inputs_is_the_others():
    pairs = {name: (torch.zeros(50, size), torch.ones(50, size)) for name, size in (("x", 100), ("y", 1000))}
    found = cut({**pairs, "z": (torch.zeros(50, 1), torch.ones(50, 1))}, {}, random())
    assert torch.allclose(found["x"].mean(1), found["y"].mean(1), atol=0.02)
    assert float(found["z"].abs().max()) == 0


def test_a_sample_is_two_stretches_of_two_samples_each_mixed(monkeypatch):
    monkeypatch.setattr(blends, "_SCATTER", 0.0)
    samples = {"x": torch.eye(40).unsqueeze(2).expand(40, 40, 30)}  # which sample a place in time is of
    found = blended(samples, 100, {"x": ((1, 1),)}, {}, random())["x"]
    assert torch.allclose(found.sum(1), torch.ones(100, 30), atol=1e-6)
    assert int((found > 0).sum(1).max()) == 2
    assert {int(each) for each in (found > 0).any(2).sum(1)} >= {3, 4}
    assert torch.equal(found, blended(samples, 100, {"x": ((1, 1),)}, {}, random())["x"])


def test_samples_are_scattered_as_they_differ():
    """Along the axis that these differ along, and by three tenths of what they do."""
    way = torch.tensor([3.0, -1.0, 0.5])
    samples = 7.0 + torch.linspace(-2, 2, 60).reshape(60, 1, 1) * way.reshape(1, 1, 3)
    found = scattered(samples, torch.randn(4000, 60, generator=random()))
    assert found.shape == (4000, 1, 3)
    along = found.flatten(1) @ way / way.square().sum()
    assert torch.allclose(found.flatten(1), along[:, None] * way, atol=1e-4)
    assert float(along.std() / torch.linspace(-2, 2, 60).std(correction=0)) == pytest.approx(0.3, rel=0.05)
    assert float(along.mean()) == pytest.approx(0.0, abs=0.03)


def test_samples_with_integers_stay():
    samples = {"x": torch.rand(8, 5), "i": torch.arange(8).reshape(8, 1)}
    found = blended(samples, 20, {}, {}, random())
    assert torch.equal(found["x"], samples["x"][found["i"].flatten()])
