"""Operators that order, look up or put elements into places, each a row; and inputs that a model returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import convertkit
from convertkit.converters.pytorch.operators.missing_ops import substitutes
from convertkit.converters.pytorch.routes.exporting import write_program

pytestmark = pytest.mark.filterwarnings("ignore")

_LABELS = torch.tensor([[0, 3, 1, 2, 0], [1, 1, 3, 0, 2]])


def _written(x: Tensor, source: Tensor, first: int = 0) -> Tensor:
    y = x.clone()
    y[:, first:].copy_(source)
    return y


_MASK = torch.tensor([True, False, True, False, True])


def _put(x: Tensor, where: tuple[object, ...], values: Tensor) -> Tensor:
    y = x.clone()
    y[where] = values
    return y


FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "atleast of a number": lambda x: torch.atleast_3d(x.sum()),
    "atleast of a vector": lambda x: torch.atleast_3d(x[0, 0]),
    "atleast of several": lambda x: torch.atleast_2d([x.sum(), x[0, 0], x[0]]),
    "atleast, nothing to do": torch.atleast_1d,
    "columns": lambda x: torch.column_stack([x[0, :, 0], x[1]]),
    "depth": lambda x: torch.dstack([x[0], x[1]]),
    "buckets": lambda x: torch.bucketize(x, torch.tensor([-0.5, 0.25, 0.25, 1.0])),
    "buckets to the right": lambda x: torch.bucketize(x.round(), torch.tensor([-1.0, 0.0, 1.0]), right=True),
    "buckets of NaN": lambda x: torch.bucketize(x.sqrt(), torch.tensor([-1.0, 0.25, 0.5])),
    "buckets in no order": lambda x: torch.bucketize(x.round(), x[0, 0].round(), right=True),
    "put behind other axes": lambda x: _put(x, (slice(None), slice(None), _MASK), x[..., :3] * 3),
    "put between axes": lambda x: _put(x, (slice(None), _MASK[:4]), x[:, 1:3] * 3),
    "put, the same for all": lambda x: _put(x, (slice(None), slice(None), _MASK), x[0, 0, 2:]),
    "a number put": lambda x: _put(x, (slice(None), _MASK[:4]), x[0, 0, 0]),
    "put in two axes at once": lambda x: _put(x, (slice(None), _MASK & (x[0] > x[0, :, :1])), x[1, 1, 1]),
    "added where a mask is": lambda x: torch.ops.aten.index_put(x, [None, None, _MASK], x[0, 0, 2:], accumulate=True),
    "smallest and largest": torch.aminmax,
    "smallest and largest of an axis": lambda x: torch.aminmax(x, dim=1, keepdim=True),
    "smallest and largest of a number": lambda x: torch.aminmax(x.sum()),
    "largest of a number": lambda x: torch.amax(x.sum(), ()),
    "diagonal": lambda x: torch.diagonal_scatter(x, x[:, 0, :2] * 2, offset=-2, dim1=1, dim2=2),
    "diagonal of outer axes": lambda x: torch.diagonal_scatter(x, x[0, :, :2] * 3, offset=1, dim1=0, dim2=2),
    "stable order": lambda x: torch.sort(x.round(), dim=1, stable=True, descending=True),
    "stable places": lambda x: torch.argsort(x.round(), dim=-1, stable=True),
    "order of flags": lambda x: torch.sort(x > 0, dim=2),
    "largest flag": lambda x: torch.max(x > 0, 1),
    "smallest flag of all": lambda x: torch.min(x > -9),
    "largest flags": lambda x: torch.amax(x > 1, (0, 2)),
    "smallest flags": lambda x: torch.amin(x > -1, 1, keepdim=True),
    "greater and no NaN": lambda x: torch.fmax(x, x.flip(1).sqrt()),
    "smaller and no NaN": lambda x: torch.fmin(x.sqrt(), x.flip(2)),
    "greater of integers": lambda x: torch.fmax((x * 4).int(), (x.flip(1) * 4).int()),
    "smaller of an integer and a number": lambda x: torch.fmin((x * 4).int(), x.flip(2)),
    "copied sign": lambda x: torch.copysign(x, -2.0),
    "first that are not zero": lambda x: torch.nonzero_static(x > 0, size=12, fill_value=-7),
    "more than are not zero": lambda x: torch.nonzero_static((x > 1)[0], size=30),
    "summed over an ellipsis": lambda x: torch.einsum("...ik, kj -> ij", x, x[0].T),
    "ellipses of several axes": lambda x: torch.einsum("...ik, k... -> i...", x, x[0, 0]),
    "ellipses of several axes, summed": lambda x: torch.einsum("...ik, ...j -> ij", x, x[0, 0]),
    "one label without a batch": lambda x: functional.cross_entropy(x[0, 0], _LABELS[0, 1]),
    "largest of cells, and where": lambda x: functional.adaptive_max_pool2d(x.round(), (3, 2), return_indices=True),
    "largest of parts, and where": lambda x: functional.adaptive_max_pool1d(x.round(), 3, return_indices=True),
    "largest of many cells, and where": lambda x: functional.adaptive_max_pool2d(
        x.tile(1, 7, 5).round(), (18, 16), return_indices=True
    ),
    "mean of all, no axes named": lambda x: torch.mean(x, dim=None),
    "mean of all, axes kept": lambda x: x.mean(dim=None, keepdim=True),
    "norm of all, axes kept": lambda x: torch.linalg.norm(x, keepdim=True),
    "largest of all as a norm, axes kept": lambda x: torch.linalg.vector_norm(x, float("inf"), keepdim=True),
    "place of the largest of all, axes kept": lambda x: torch.argmax(x.round(), keepdim=True),
    "place of the smallest of all, axes kept": lambda x: torch.argmin(x.round(), keepdim=True),
    "product across the first axis of three": lambda x: torch.cross(x[:, :3], x[:, 1:], dim=None),
    "put in fewer places than are given": lambda x: torch.scatter(x, 1, (x[:, :2, :3] > 0).long(), x[:, 1:]),
    "added in fewer places than are given": lambda x: torch.scatter_add(x, 0, (x[:1, :2] > 0).long(), x),
    "largest of fewer than are given": lambda x: torch.scatter_reduce(x, 1, (x[:, :2] > 0).long(), x, "amax"),
    "multiplied in places": lambda x: torch.scatter(x, 1, (x[:, :2] > 0).long(), x, reduce="multiply"),
    "a number added in places": lambda x: torch.scatter(x, 1, (x[:, :2] > 0).long(), 2.5, reduce="add"),
    "squeezed axis of several": lambda x: torch.squeeze(x, 1),
    "smoothed labels": lambda x: functional.cross_entropy(x, _LABELS, label_smoothing=0.1),
    "smoothed labels, weighted": lambda x: functional.cross_entropy(
        x, _LABELS, torch.arange(1.0, 5), label_smoothing=0.2, ignore_index=3
    ),
    "smoothed labels, each": lambda x: functional.cross_entropy(
        x[0], _LABELS[0, :4], label_smoothing=0.1, reduction="none"
    ),
    "soft labels": lambda x: functional.cross_entropy(
        x, x.softmax(1).flip(1), torch.arange(1.0, 5), label_smoothing=0.1
    ),
    "soft labels, summed": lambda x: functional.cross_entropy(x[0, 0], x[1, 1].softmax(0), reduction="sum"),
    "cells of a tenth": lambda x: torch.round(x * 10) / 10 // 0.1,
    "cells of two thirds, downwards": lambda x: torch.floor_divide(torch.round(x * 9) / 3, -2 / 3),
    "cells of their own": lambda x: torch.div(torch.round(x), torch.round(x[0]) * 0.1, rounding_mode="floor"),
    "cells of a number": lambda x: 5.0 // (torch.round(x * 10).abs() / 10 + 0.1),
    "cells of a whole number": lambda x: 7 // (torch.round(x * 10).abs() / 10 + 0.1),
    "cells of an integer": lambda x: 100 // ((x * 9).long() * 2 + 1),
    "cells in place": lambda x: (torch.round(x * 10) / 10).floor_divide_(0.1),
    "cells of halves": lambda x: (torch.round(x * 10) / 10).half() // 0.1,
    "left of a number": lambda x: 5.0 % (torch.round(x * 10).abs() / 10 + 0.1),
    "left of a number below zero": lambda x: -5.3 % (torch.round(x * 10).abs() / 10 + 0.1),
    "left of a tenth": lambda x: torch.round(x * 10) / 10 % 0.1,
    "left of a turn": lambda x: torch.remainder(x * 1e4, -6.2831855),
    "left of their own": lambda x: torch.remainder(torch.round(x), torch.round(x[1]) * 0.1).nan_to_num(9),
    "put": lambda x: torch.put(x, torch.tensor([[3, -1]]), x[0, 0, :2] * 2),
    "put and added": lambda x: torch.put(x, torch.tensor([3, -1, 3]), x[0, 0, :3], accumulate=True),
    "repeated to a known size": lambda x: torch.repeat_interleave(x, (x[0, :, 0] * 0).long() + 2, 1, output_size=8),
    "repeated as often each": lambda x: torch.repeat_interleave(x[0, 0], torch.tensor([2]), output_size=10),
    "distances of pairs": lambda x: torch.pdist(x[0]),
    "steps between pairs": lambda x: torch.pdist(x[1], 1.0),
    "largest of no axes": lambda x: torch.topk(x.sum(), 1),
    "first of no axes": lambda x: torch.kthvalue(x.sum(), 1, keepdim=True),
    "median of no axes": lambda x: torch.median(x.sum(), 0),
    "product of no axes": lambda x: torch.prod(x.sum(), 0),
    "norm of no axes": lambda x: torch.linalg.vector_norm(x.sum(), 2, 0),
    "scattered into no axes": lambda x: torch.scatter(x.sum(), 0, torch.tensor(0), x[0, 0, 0]),
    "added into no axes": lambda x: torch.scatter_add(x.sum(), 0, torch.tensor(0), x[0, 0, 0]),
    "mean in no axes": lambda x: torch.scatter_reduce(x.sum(), 0, torch.tensor(0), x[0, 0, 0], "mean"),
    "antialiased between corners": lambda x: functional.interpolate(
        x[None], size=(3, 7), mode="bilinear", antialias=True, align_corners=True
    ),
    "antialiased by a factor": lambda x: functional.interpolate(
        x[None], scale_factor=(0.6, 1.7), mode="bicubic", antialias=True
    ),
}
DOUBLES: dict[str, Callable[[Tensor], Tensor]] = {
    "cells": lambda x: (torch.round(x * 10) / 10).double() // 0.1,
    "left": lambda x: (torch.round(x * 10) / 10).double() % 0.1,
    "cells of a number": lambda x: 0.7 // (x.double().abs() + 0.125),
    "left of a number": lambda x: 0.7 % (x.double().abs() + 0.125),
}
COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "a row copied over all": lambda x: _written(x, x[0, 1]),
    "a column copied over a slice": lambda x: _written(x, x[:, :1], 1),
    "integers copied over floats": lambda x: _written(x, (x[:, 1:] * 3).int(), 1),
    "floats copied over integers": lambda x: _written((x * 9).int(), x[:, :1] * 5, 2),
    "copied within an operator": lambda x: torch.vander(x[0, 0], 3),
}
CLOSE = {name for name in FUNCTIONS if "labels" in name} | {
    "summed over an ellipsis",
    "ellipses of several axes",
    "ellipses of several axes, summed",
    "antialiased between corners",
    "antialiased by a factor",
    "distances of pairs",
    "steps between pairs",
    *(name for name in FUNCTIONS if name.startswith(("mean of all", "norm of all"))),
}
"""Sums, which are not equal bit by bit."""


class Told(nn.Module):
    """Every function of x, one after another, as outputs; x itself last.

    Cells of halves jump where a runtime computes in float32, and such a model is refused.
    """

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        results: list[Tensor] = []
        for function in (each for name, each in FUNCTIONS.items() if name != "cells of halves"):
            said = function(x)
            results.extend(each.float() for each in ([said] if isinstance(said, Tensor) else list(said)))
        return (*results, x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_is_taken_apart_into_the_same_numbers(name: str) -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> object:
            said = FUNCTIONS[name](x)
            return said if isinstance(said, Tensor) else list(said)

    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(4))
    program = torch.export.export(One(), (x,), strict=False)
    table = substitutes(program)
    assert table
    taken = program.run_decompositions(table).module()
    loose = {"rtol": 1e-6, "atol": 1e-6} if name in CLOSE else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(taken(x), One()(x), equal_nan=True, **loose)


@pytest.mark.parametrize("divisor", [0.25, -2.0, 0.0])
def test_quotients_that_are_not_rounded_are_left(divisor: float) -> None:
    class Divided(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x // divisor, x % divisor

    assert substitutes(torch.export.export(Divided(), (torch.randn(3),), strict=False)) == {}


def test_values_put_by_two_masks_are_left_to_the_exporter() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return _put(x, (slice(None), _MASK[:4], torch.tensor([True, False, False, True, False])), x[:, 0, :2])

    assert substitutes(torch.export.export(Two(), (torch.randn(2, 4, 5),), strict=False)) == {}


def test_all_of_them_come_out_of_the_runtimes(tmp_path: Path) -> None:
    example = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(5))
    program = torch.export.export(Told(), (example,), strict=False)
    torch.export.save(program, tmp_path / "told.pt2")
    options = convertkit.ExportOptions(
        str(tmp_path / "told.pt2"), targets=("onnxruntime", "tflite"), output=str(tmp_path / "out")
    )
    x = np.random.default_rng(6).standard_normal((2, 4, 5)).astype(np.float32)
    expected = [each.numpy() for each in Told()(torch.from_numpy(x))]
    for result in convertkit.export_all(options):
        got = list(result.run(x).values())
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_what_is_copied_takes_the_type_and_the_shape_of_its_place(tmp_path: Path) -> None:
    class Copied(nn.Module):
        def forward(self, x: Tensor) -> list[Tensor]:
            return [function(x) for function in COPIES.values()]

    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(4))
    program = torch.export.export(Copied(), (x,), strict=False)
    write_program(program, ["x"], [f"y{place}" for place in range(len(COPIES))], str(tmp_path / "model.onnx"))
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    for name, got, expected in zip(COPIES, session.run(None, {"x": x.numpy()}), Copied()(x), strict=True):
        np.testing.assert_array_equal(got, expected.numpy(), err_msg=name)
        assert got.dtype == expected.numpy().dtype


@pytest.mark.parametrize("known", [True, False])
def test_what_is_chosen_by_a_mask_is_taken_apart_with_the_rest(known: bool, tmp_path: Path) -> None:
    """The size depends on data, which an attempt that fails leaves unclaimed; ``lgamma`` makes the first one fail."""

    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            chosen = x[x > 0] if known else torch.masked_select(x, (x > 0)[:, :1])
            return torch.lgamma(chosen + 1).sum(), torch.nonzero(x.sum() > 0)

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))
    program = torch.export.export(Chosen(), (x,), strict=False)
    write_program(program, ["x"], ["y", "places"], str(tmp_path / "model.onnx"))
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    for each in (x, -x):
        y, places = session.run(None, {"x": each.numpy()})
        np.testing.assert_allclose(y, Chosen()(each)[0].numpy(), rtol=1e-5, atol=1e-6)
        assert places.shape == tuple(Chosen()(each)[1].shape)


def test_an_input_that_is_returned_keeps_its_name(tmp_path: Path) -> None:
    class Passing(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x * 2, mask, x

    result = convertkit.export(
        Passing(), "onnxruntime", example=(torch.rand(2, 3), torch.rand(2, 5)), output=tmp_path / "out"
    )
    assert [spec.name for spec in result.artifact.inputs] == ["x", "mask"]
    feed = {"x": np.ones((2, 3), np.float32), "mask": np.full((2, 5), 3, np.float32)}
    doubled, mask, x = result.run(feed).values()
    assert (doubled == 2).all()
    np.testing.assert_array_equal(mask, feed["mask"])
    np.testing.assert_array_equal(x, feed["x"])


def test_quotients_of_float64_have_divisors_of_all_digits(tmp_path: Path) -> None:
    class Divided(nn.Module):
        def forward(self, x: Tensor) -> list[Tensor]:
            return [function(x) for function in DOUBLES.values()]

    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(4))
    program = torch.export.export(Divided(), (x,), strict=False)
    write_program(program, ["x"], [f"y{place}" for place in range(len(DOUBLES))], str(tmp_path / "model.onnx"))
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    for name, got, expected in zip(DOUBLES, session.run(None, {"x": x.numpy()}), Divided()(x), strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-14, atol=1e-15, err_msg=name)
