"""What a bisection looks at: the values of two models, the input that tells most, a source's own conversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from convertkit import plugins
from convertkit.artifact import Array, Artifact
from convertkit.compare.agreement import Ran
from convertkit.compare.matching import Pair, Values, by_name, by_structure, by_values
from convertkit.compare.scan import Sides, chunks
from convertkit.errors import ConvertKitError, UsageError
from convertkit.looking.opened import Opened
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Departure as Beyond
from convertkit.parity.values import Recording
from convertkit.probing import Inner, Probe, ProbedRunner
from convertkit.stage import FLOAT32, Feed
from convertkit.twins import Twins


def looked_into(model: Opened) -> Artifact:
    """The file whose values are looked at: its own where its runtime tells them, else its ONNX."""
    if model.delivered is not None or model.artifact.format in plugins.runner_names():
        return model.artifact
    return model.onnx()


def probe(artifact: Artifact) -> Probe:
    """What looks into an artifact; ``UsageError`` where its runtime tells no values inside of it."""
    runner = plugins.runner(artifact)
    if not isinstance(runner, ProbedRunner):
        raise UsageError(
            f"the runtime of {artifact.path.name} ({artifact.format}) does not tell the values inside of it"
        )
    return runner.probe()


def telling(ran: Ran, departures: Sequence[Beyond]) -> int:
    """The smallest feed on which an output is beyond the tolerance, else the usual one on which it is furthest off."""
    if departures:
        sizes = [sum(np.size(value) for value in feed.values()) for feed in ran.before.feeds]
        return min(departures, key=lambda each: (sizes[each.place], -each.diff.relative)).place
    gaps = [
        max((_gap(before[name], after[name]) for name in before), default=0.0)
        for before, after in zip(ran.before.outputs[: ran.before.usual], ran.after.outputs, strict=False)
    ]
    return int(np.argmax(gaps)) if gaps else 0


def _gap(a: Array, b: Array) -> float:
    if a.shape != b.shape or a.dtype.kind in "OUS":
        return float("inf") if a.shape != b.shape else 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    largest = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
    gap = float(np.nan_to_num(np.abs(x - y), posinf=np.inf).max(initial=0.0))
    return gap / largest if largest else gap


def conversion(model: Opened, onnx: Artifact, recording: Recording, place: int) -> Iterator[str]:
    """A warning where a source's own results are not those of its ONNX: then the fault is in its conversion."""
    if model.is_onnx or model.delivered is not None:
        return
    feed: Feed = recording.fed(place)
    try:
        with plugins.runner(replace(onnx, format="onnx")) as runner:
            made = Recording("its ONNX", onnx, (feed,), (runner.run(feed),))
    except ConvertKitError as error:
        yield f"the ONNX of {model.title} does not run: {str(error).splitlines()[0]}"
        return
    own = Recording(model.title, model.artifact, (feed,), (recording.outputs[place],))
    with Twins() as twins:
        report = compare_recordings(own, made, FLOAT32, twins.ask(onnx))
    if report.failures:
        yield f"{model.title} differs from its own ONNX, in the conversion: {report.failures[0]}"


def matched(
    sides: Sides, mine: Sequence[Inner], theirs: Sequence[Inner], *, lossy: bool
) -> tuple[tuple[Pair, ...], str]:
    """Pairs of values, the outputs among them however they are called, and how they were found."""
    pairs, by = by_name(mine, theirs), "name"
    if not pairs:
        inputs = {sides.how.names[spec.name]: spec.name for spec in sides.reference.inputs}
        pairs, by = by_structure(mine, theirs, inputs), "structure"
    if not pairs:
        own = runs(sides.probes[0], mine, sides.feed)
        others = runs(sides.probes[1], theirs, sides.how.given(sides.feed))
        pairs, by = by_values(mine, theirs, own, others, rounded=lossy), "value"
    return (*pairs, *ends(sides, mine, theirs, pairs)), by


def ends(sides: Sides, mine: Sequence[Inner], theirs: Sequence[Inner], pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Outputs that are not among the pairs, matched as the interfaces are."""
    known = {pair.reference.name for pair in pairs}
    own, others = {value.name: value for value in mine}, {value.name: value for value in theirs}
    for spec in sides.reference.outputs:
        name, other = spec.name, sides.probes[1].port(sides.how.names[spec.name])
        if name not in known and name in own and other in others:
            yield Pair(_before_rounding(own[name], own), others[other])


def _before_rounding(value: Inner, made: Mapping[str, Inner]) -> Inner:
    """What an output of integers stands for: the integers of the other side are looked at as reals, too."""
    return made.get(value.inputs[0], value) if value.kind == "QuantizeLinear" and value.inputs else value


def runs(probe: Probe, values: Sequence[Inner], feed: Feed) -> Values:
    """What computes values by their names, in parts that fit into memory."""
    known = {value.name: value for value in values}

    def run(names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        for chunk in chunks([known[name] for name in names], feed):
            yield from probe.values(feed, [value.name for value in chunk]).items()

    return run
