"""Pruning by and by: the shares on the way, and what is gained by fitting in between."""

from __future__ import annotations

import itertools

import pytest

from convertkit.progress import Silent
from convertkit.quantization.pruning.gradual import on_the_way, pruned_gradually
from convertkit.quantization.pruning.joint import JointFit
from convertkit.quantization.pruning.patterns import Pattern
from convertkit.quantization.pruning.products import find_products, total
from convertkit.quantization.pruning.sparsify import Sparsifier
from tests.quantization.test_joint import distance, every_form, feeds


@pytest.mark.parametrize(("share", "turns"), [(0.3, 1), (0.5, 3), (0.8, 6), (0.9, 9)])
def test_equal_shares_go_of_what_is_left(share: float, turns: int) -> None:
    found = on_the_way(share)
    assert len(found) == turns
    assert found[-1] == share
    kept = [1.0, *(1 - each for each in found)]
    ratios = [after / before for before, after in itertools.pairwise(kept)]
    assert ratios == pytest.approx([ratios[0]] * turns)
    assert ratios[0] >= min(0.75, 1 - share)


def test_by_and_by_is_better_than_at_once() -> None:
    model, samples = every_form(), feeds(96)
    fit = JointFit(model.clone(), samples[:64], samples[64:], {}, 0, Silent())
    made = pruned_gradually(model.clone(), Pattern(0.8), fit)
    assert made is not None
    gradual, found = made
    worker = Sparsifier(model.clone(), samples[:64], {}, 0, Silent())
    at_once, _ = worker.pruned(Pattern(0.8), worker.curves())
    assert distance(model, gradual) < 0.72 * distance(model, at_once)
    products = find_products(gradual.graph)
    zeros = sum(int((product.rows == 0).sum()) for product in products)
    assert zeros / total(products) == pytest.approx(0.8, abs=0.01)
    assert len(found) == len(products)


def test_what_gains_nothing_by_and_by_is_pruned_at_once() -> None:
    model, samples = every_form(), feeds(96)
    fit = JointFit(model.clone(), samples[:64], samples[64:], {}, 0, Silent())
    few = JointFit(model.clone(), samples[:8], samples[64:], {}, 0, Silent())
    assert pruned_gradually(model.clone(), Pattern(0.5, 2, 4), fit) is None
    assert pruned_gradually(model.clone(), Pattern(0.3), fit) is None
    assert pruned_gradually(model.clone(), Pattern(0.8), few) is None
