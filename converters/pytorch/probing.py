"""Running a model on generated inputs to learn its interface (in a fork of the worker)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.examples import traced_examples
from convertkit.converters.pytorch.inputs import BATCH, example_sizes, free_batch, leaves_of
from convertkit.converters.pytorch.leaves import Leaf, to_json
from convertkit.converters.pytorch.loading import brief
from convertkit.converters.pytorch.subject import Subject
from convertkit.errors import SourceError
from convertkit.parity.feeds import generated_feed

_SECOND, _THIRD = 2, 5
"""Batch sizes at which a free batch must work; the parity proof uses 1 and 3."""


def describe(subject: Subject, path: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves, output names, sizes to check at and notes, as JSON."""
    examples = traced_examples(path) if subject.kind == "torchscript" else None
    fixed = leaves_of(subject, examples, params["inputs"])
    leaves, notes = _with_free_batch(subject, fixed)
    base = example_sizes(leaves, fixed)
    outputs = _run(subject, leaves, base)
    return {
        "leaves": to_json(leaves),
        "fixed": to_json(fixed),
        "outputs": list(outputs),
        "sizes": [base, *_further_sizes(leaves, base)],
        "notes": notes,
    }


def _with_free_batch(subject: Subject, fixed: tuple[Leaf, ...]) -> tuple[tuple[Leaf, ...], list[str]]:
    """Free the batch where the model computes at other sizes too, and say what was done."""
    reason = ""
    for only_first in (False, True):
        freed = free_batch(fixed, only_first)
        if freed is None:
            return fixed, []
        try:
            for size in (_SECOND, _THIRD):
                _run(subject, freed, {BATCH: size})
        except SourceError as error:
            reason = str(error)
            continue
        return freed, []
    size = next(leaf.shape[0] for leaf in fixed if leaf.shape)
    return fixed, [f"the batch is fixed at {size}, as the model was traced: {reason}"]


def _further_sizes(leaves: Sequence[Leaf], base: Mapping[str, int]) -> list[dict[str, int]]:
    names = {dim for leaf in leaves for dim in leaf.shape if isinstance(dim, str)}
    return [{name: size for name in sorted(names)} for size in (_SECOND, _THIRD)] if names else []


def _run(subject: Subject, leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> dict[str, Array]:
    specs = [leaf.spec() for leaf in leaves]
    feed = generated_feed(specs, sizes, np.random.default_rng(1))
    try:
        return subject.compute(leaves, feed)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, torch.jit.Error) as error:
        shapes = ", ".join(f"{name} {list(value.shape)} {value.dtype}" for name, value in feed.items())
        raise SourceError(f"the model fails on {shapes}: {brief(error)}") from error
