"""Accuracy on the user's labelled samples: of the source, and of what is delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit import plugins
from convertkit.errors import FeedError, GateError
from convertkit.recipe import ExportOptions
from convertkit.records import Evaluation, Made, StepRecord
from convertkit.stage import FeedSource
from convertkit.steps import live
from convertkit.steps.describe import Described, with_sizes
from convertkit.steps.recorded import described
from convertkit.steps.verify import ways_out
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True)
class Judged:
    """The source's own accuracy; ``doubt`` says why a gate on it could hardly fail, empty where it could."""

    metric: str
    value: float
    doubt: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class JudgeSource(Task[Judged]):
    """The metric, and the source's own value; before a target's steps, as labels may not fit its outputs."""

    described: Task[Described]
    converted: Task[Made]
    options: ExportOptions
    data: str
    keeps = Judged

    @property
    def title(self) -> str:
        return "evaluating the source"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described, self.converted)

    def decides(self) -> Mapping[str, object] | None:
        return _decides(self.options, self.data)

    def run(self, given: tuple[Any, ...], context: Context) -> Judged:
        """Evaluate; ``FeedError`` where ``--max-drop`` would let everything pass, as the source itself only guesses."""
        from convertkit.data import asked
        from convertkit.data.evaluation import at_chance, find_metric, predictions

        data = _data(self.options, described(*given), context)
        settled = given[1].settled
        with live.runner(self.options, context.resources, context.progress, settled) as source, source as runner:
            labels, before = predictions(runner, context.progress.track(data, len(data), self.title))
        metric = find_metric(self.options.metric, labels, before)
        value = metric.value(labels, before)
        doubt = at_chance(metric, labels, before, value)
        if doubt and len(data) >= asked.ENOUGH and self.options.max_drop is not None:
            raise FeedError(f"--eval {data.description}: {doubt}; --max-drop would let everything pass")
        if doubt:
            context.progress.warn(doubt)
        return Judged(metric.name, value, doubt)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Task[Evaluation]):
    """The accuracy of what was made, beside the source's."""

    described: Task[Described]
    converted: Task[Made]
    judged: Task[Judged]
    made: Task[Made]
    options: ExportOptions
    data: str
    keeps = Evaluation

    @property
    def title(self) -> str:
        return f"evaluating {self.made.title}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described, self.converted, self.judged, self.made)

    def decides(self) -> Mapping[str, object] | None:
        chosen = _decides(self.options, self.data)
        return None if chosen is None else {**chosen, "max_drop": self.options.max_drop}

    def run(self, given: tuple[Any, ...], context: Context) -> Evaluation:
        """Evaluate the artifact; whether it passes is the value's to say."""
        from convertkit.data.evaluation import find_metric, predictions

        opened, converted, judged, made = given
        data = _data(self.options, described(opened, converted), context)
        title = f"evaluating {made.artifact.path.name}"
        with plugins.runner(made.artifact) as runner:
            labels, after = predictions(runner, context.progress.track(data, len(data), title))
        metric = find_metric(judged.metric, labels, after)
        values = judged.value, metric.value(labels, after)
        return Evaluation(metric.name, len(data), *values, metric.drop(*values), self.options.max_drop)


def gate_error(evaluation: Evaluation, options: ExportOptions, steps: Sequence[StepRecord] = ()) -> GateError:
    """What ends an export that lost more accuracy than ``--max-drop`` allows, with what its steps advise."""
    unit, moved = ("%", "rose") if evaluation.metric == "mse" else ("points", "fell")
    told = (
        f"{evaluation.metric} {moved} from {evaluation.before:.4g} to {evaluation.after:.4g}: "
        f"{evaluation.drop:.3g} {unit}, --max-drop allows {evaluation.max_drop:g}"
    )
    advised = tuple(str(way) for step in steps for way in ways_out(step))
    return GateError("\n".join((told, *(f"  try   {way}" for way in (*advised, *_ways(options, advised))))))


def _ways(options: ExportOptions, advised: Sequence[str]) -> Iterator[str]:
    """What loses less of what was asked for; samples, where no step has spoken of them."""
    if not advised:
        yield "more samples for --calib, as varied as those of --eval"
    if options.precision == "int8":
        yield "--w8 instead of --int8: stored integers, float activations"
    for flag, asked in (("--prune", options.prune), ("--prune-channels", options.prune_channels)):
        if asked is not None:  # a share, auto, or N:M
            yield f"{flag} with a {'smaller' if asked.replace('.', '').isdigit() else 'small'} share"
    if options.target_latency is not None:
        yield "--target-latency with a larger share"
    if options.recover is None and options.pruned:
        yield "--recover: training on the calibration data, without labels"
    yield "a larger --max-drop, where that much may be lost"


def _decides(options: ExportOptions, data: str) -> Mapping[str, object] | None:
    """None where the user's own function judges."""
    if options.metric is not None and ":" in options.metric:
        return None
    return {"metric": options.metric, "data": data, "gated": options.max_drop is not None}


def _data(options: ExportOptions, source: Described, context: Context) -> FeedSource:
    data = live.evaluation(options, with_sizes(source.artifact, options).inputs, context.resources)
    assert data is not None  # only exports with --eval have these tasks
    return data
