"""The data of one export, as its flags say: which samples, and how files become inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from convertkit.artifact import TensorSpec
from convertkit.data.feeds import Feeds, load_feeds
from convertkit.recipe import ExportOptions

ENOUGH = 20
"""Samples below which ranges are measured on too little: the loudest of the next hundred lies beyond them."""


def calibration(options: ExportOptions, inputs: Sequence[TensorSpec]) -> Feeds | None:
    """The samples of ``--calib``, with a warning where they are too few to measure ranges on."""
    if options.calib is None:
        return None
    feeds = _loaded(options.calib, inputs, options, options.calib_samples, label=False)
    if not options.quantized or not 1 < len(feeds) < ENOUGH:  # one alone has a warning of its own
        return feeds
    few = (
        f"{feeds.description}: {len(feeds)} samples to measure ranges on; give at least {ENOUGH}, 100 to 500 are usual"
    )
    return dataclasses.replace(feeds, warnings=(*feeds.warnings, few))


def evaluation(options: ExportOptions, inputs: Sequence[TensorSpec]) -> Feeds | None:
    """The labelled samples of ``--eval``."""
    return None if options.eval is None else _loaded(options.eval, inputs, options, None, label=True)


def _loaded(
    data: object, inputs: Sequence[TensorSpec], options: ExportOptions, samples: int | None, *, label: bool
) -> Feeds:
    plain = tuple(spec for spec in inputs if not spec.is_state)
    images = options.images
    for each in options.normalization:
        if [each.input] == [spec.name for spec in plain]:  # images can only be for a single input
            images = dataclasses.replace(images, mean=each.mean, std=each.std)
    return load_feeds(data, plain, samples=samples, label=label, images=images, wav=options.wav)
