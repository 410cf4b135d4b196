"""What a task holds open while it runs, and leaves open for the next: the source's worker, the data, the twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import FeedError
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.report.jsonable import jsonable
from convertkit.stage import ConcurrentSource, Feed, Runner, Settled, SettledSource, Source, Target, WithEngine
from convertkit.tasks.resources import Resources

if TYPE_CHECKING:
    from convertkit.data.feeds import Feeds
    from convertkit.parity.truth import AskTruth, Truth

SOURCE_OPTIONS = frozenset({
    "source", "model", "inputs", "signature", "trust", "seed", "timeout_s", "preprocess", "postprocess",
    "allow_unverified",
})  # fmt: skip
"""What a converter reads, and what is put around its source."""
DATA_OPTIONS = frozenset({"images", "wav", "normalization", "calib_samples", "precision"})
"""What makes samples of files."""


def chosen(options: ExportOptions, names: frozenset[str]) -> dict[str, object]:
    """The options of those names in a fixed order, JSON-able."""
    return {field.name: jsonable(getattr(options, field.name)) for field in fields(options) if field.name in names}


def package_of(plugin: object) -> str:
    """The package that a plugin comes with."""
    return type(plugin).__module__.partition(".")[0]


def engine_of(target: Target) -> dict[str, str]:
    """What tells the versions of the target's engine, its Python and its system; empty where it has none.

    An engine compiles for the machine that it runs on, so that two machines with one cache share nothing of it.
    """
    return {"engine": plugins.engine(target.engine).key} if isinstance(target, WithEngine) else {}


@contextmanager
def source(
    options: ExportOptions, resources: Resources, progress: Progress, settled: Settled | None = None
) -> Iterator[Source]:
    """The opened source, for nobody else meanwhile unless it is one that may be executed while it is converted.

    ``settled`` is what its conversion has found out about it.
    """
    held = resources.held(_called(options), partial(_opened, options, resources, progress))
    with held as opened:
        current = opened.settled(settled) if settled is not None and isinstance(opened, SettledSource) else opened
        if not is_shared(opened):
            yield current
            return
    yield current


def close_source(options: ExportOptions, resources: Resources) -> None:
    """Close the source, which nothing more is asked of; it is opened again where something is."""
    resources.forget(_called(options))


def _called(options: ExportOptions) -> str:
    """The name by which the opened source is known."""
    return f"source {chosen(options, SOURCE_OPTIONS)}"


@contextmanager
def runner(
    options: ExportOptions, resources: Resources, progress: Progress, settled: Settled | None = None
) -> Iterator[Runner]:
    """What runs the source."""
    with source(options, resources, progress, settled) as opened:
        yield opened.runner()


def is_shared(source: Source) -> bool:
    """Whether a source may be executed while it is converted."""
    return isinstance(source, ConcurrentSource) and source.concurrent


def _opened(options: ExportOptions, resources: Resources, progress: Progress) -> AbstractContextManager[Source]:
    converter = plugins.converter_for(options.source)
    opened = converter.open(options.source, options, resources.folder("source"), progress)
    if options.preprocess is None and options.postprocess is None:
        return opened
    from convertkit.processing.source import with_processing

    try:
        return with_processing(opened, options)
    except BaseException as error:
        opened.__exit__(type(error), error, error.__traceback__)
        raise


def calibration(options: ExportOptions, inputs: Sequence[TensorSpec], resources: Resources) -> Feeds | None:
    """The samples of ``--calib``, opened and checked once."""
    if options.calib is None:
        return None
    from convertkit.data import asked

    return _loaded("calibration", options, inputs, resources, asked.calibration)


def evaluation(options: ExportOptions, inputs: Sequence[TensorSpec], resources: Resources) -> Feeds | None:
    """The labelled samples of ``--eval``, opened and checked once."""
    if options.eval is None:
        return None
    from convertkit.data import asked

    return _loaded("evaluation", options, inputs, resources, asked.evaluation)


def _loaded(
    role: str,
    options: ExportOptions,
    inputs: Sequence[TensorSpec],
    resources: Resources,
    load: Callable[[ExportOptions, Sequence[TensorSpec]], Feeds | None],
) -> Feeds | None:
    """Samples are read again and again, by any number of tasks at a time: only opening them is for one alone."""
    key = f"{role} {chosen(options, DATA_OPTIONS)} {tuple(inputs)}"
    try:
        with resources.held(key, lambda: nullcontext(load(options, inputs))) as samples:
            return samples
    except FeedError as error:
        if options.preprocess is None:
            raise
        what = "PCM of 16 bits" if "audio:" in options.preprocess else "pictures as bytes"
        raise FeedError(f"{error}\n  try   {what}, which the model takes with --preprocess") from error


def truth(artifact: Artifact, resources: Resources) -> AskTruth:
    """What the float64 twin of an ONNX artifact computes; made when it is first asked."""

    def asked(feed: Feed) -> Truth | None:
        from convertkit.twins import Twins

        with resources.held("twins", Twins) as twins:
            return twins.ask(artifact)(feed)

    return asked
