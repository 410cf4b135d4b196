"""All that is measured on one delivered artifact, once every step is verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Artifact, bytes_beside, files_of, is_small
from convertkit.findings.compressed import sizes
from convertkit.findings.depth import along_depth
from convertkit.findings.estimates import compiled_estimates, estimates
from convertkit.findings.interface import interface
from convertkit.findings.latency import measure_latency
from convertkit.findings.precision import effective
from convertkit.findings.quality import beyond_ranges, judged, measure
from convertkit.findings.values import Estimates, Findings, Latency, Level, Quality
from convertkit.memory import collect_after
from convertkit.onnx.profiling import node_times
from convertkit.onnx.providers import AcceleratedTarget, provider_shares
from convertkit.operators import CompilingTarget, EstimatingTarget, InspectingTarget, NodeTime, ProviderShare
from convertkit.parity.compare import listed
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.records import StepRecord
from convertkit.stage import BuildContext, Feed, FeedSource, Runner, Target, execution

_SMALLER = 0.99
_LARGEST_BASELINE = 1 << 30
"""Bytes of ONNX, weights beside it included, up to which a float32 form is made to be timed."""
_UNASKED_BYTES = 32 << 20
"""Of an artifact, up to which times are estimated that nobody asked for: that may hold the weights several times."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A finished export and what it is measured with.

    ``hub`` is the source as ONNX before any pass, ``feed`` one set of inputs, ``workdir`` a folder for the temporary.
    """

    options: ExportOptions
    target: Target
    source: Artifact
    source_runner: Callable[[], AbstractContextManager[Runner]]
    hub: Artifact
    artifact: Artifact
    steps: Sequence[StepRecord]
    calibration: FeedSource | None
    evaluation: FeedSource | None
    feed: Feed
    workdir: Path
    progress: Progress

    @property
    def is_lossy(self) -> bool:
        """Whether a step changed numerics on purpose, ours or another package's."""
        return any(step.versus_source.tolerance.lossy for step in self.steps)


def find(subject: Subject) -> Findings:
    """Inspect the artifact, run it beside the source on unseen samples, and time it beside its float32 form."""
    target, options = subject.target, subject.options
    operators = target.operators(subject.artifact) if isinstance(target, InspectingTarget) else ()
    collect_after(subject.artifact)
    diagnoses = [step.diagnosis for step in subject.steps if step.diagnosis is not None]
    became = effective(options.precision, operators, diagnoses) if operators else None
    float32 = _float32(subject) if _has_other_float32(subject) else None
    latency = _latency(subject, float32)
    zeros, told = sizes(target, subject.artifact, options.prune is not None)
    quality = _quality(subject)
    return Findings(
        operators=operators,
        effective=became,
        quality=quality,
        latency=latency,
        estimates=_estimates(subject, float32),
        interface=interface(subject.artifact, options, subject.feed),
        depth=_depth(subject),
        times=_times(subject),
        providers=_providers(subject),
        sizes=zeros,
        notes=(*_notes(subject), *beyond_ranges(quality, diagnoses), *told),
        execution=execution(target, options),
    )


def _quality(subject: Subject) -> Quality | None:
    samples = judged(subject.calibration, subject.evaluation) if subject.is_lossy else ()
    if not samples:
        return None
    subject.progress.status("measuring on held-out samples")
    delivered = subject.artifact, plugins.runner(subject.artifact)
    with subject.source_runner() as source:
        return measure(samples, (subject.source, source), delivered)


def _depth(subject: Subject) -> tuple[Level, ...]:
    """Of the first lossy step from ONNX to ONNX, on one set of inputs; not of models that are held once at a time."""
    before = subject.hub
    for step in subject.steps:
        if step.versus_previous.tolerance.lossy and step.artifact.format == before.format == "onnx":
            return along_depth(before, step.artifact, subject.feed) if is_small(before) else ()
        before = step.artifact
    return ()


def _times(subject: Subject) -> tuple[NodeTime, ...]:
    """By node, where ONNX Runtime is what will run it: LiteRT's interpreter does not tell."""
    artifact = subject.artifact
    if not subject.target.runs_here or artifact.format != "onnxruntime" or artifact.initial_state is not None:
        return ()
    if not is_small(artifact):
        return ()
    specs = {spec.name: spec for spec in artifact.inputs}
    feed = {name: specs[name].encode(value) for name, value in subject.feed.items() if name in specs}
    place = subject.workdir / f"{subject.target.name}-profile"
    place.mkdir(parents=True, exist_ok=True)
    return node_times(artifact, feed, place)


def _providers(subject: Subject) -> tuple[ProviderShare, ...]:
    """Of the delivered ONNX, where the target is for ONNX Runtime."""
    known = subject.target.providers() if isinstance(subject.target, AcceleratedTarget) else ()
    return provider_shares(subject.artifact.path, known) if known else ()


def _latency(subject: Subject, float32: Artifact | None) -> Latency | None:
    """Only where what runs the artifact here is what will run it."""
    if not subject.target.runs_here:
        return None
    subject.progress.status("measuring latency")
    return measure_latency(subject.artifact, subject.feed, float32)


def _estimates(subject: Subject, float32: Artifact | None) -> Estimates | None:
    target = subject.target
    if isinstance(target, CompilingTarget):
        return compiled_estimates(target, subject.artifact)
    if not isinstance(target, EstimatingTarget):
        return None
    asked = subject.options.device
    if not asked and not target.likely_devices and bytes_beside(subject.artifact) > _UNASKED_BYTES:
        return Estimates((), "a file above 32 MiB is estimated by convertkit bench --device")
    return estimates(target, subject.artifact, float32, asked, subject.options.measured_of(target.name))


def _has_other_float32(subject: Subject) -> bool:
    """Whether there is a float32 form beside the artifact to hold it against."""
    return subject.target.runs_here and subject.options.lossy and _fits_twice(subject.hub)


def _fits_twice(hub: Artifact) -> bool:
    """Whether the float32 form may lie in memory beside the artifact; TFLite's files end at 2 GiB."""
    return sum(file.stat().st_size for file in files_of(hub.path.parent)) <= _LARGEST_BASELINE


def _float32(subject: Subject) -> Artifact:
    """The same target's artifact of the model as it came, made for comparison and thrown away."""
    plain = dataclasses.replace(subject.options, precision="float32", io_dtype="float32", full_integer=False)
    float32 = subject.hub
    for index, stage in enumerate(subject.target.stages(BuildContext(plain, subject.target))):
        place = subject.workdir / f"{subject.target.name}-float32" / str(index)
        place.mkdir(parents=True)
        float32 = stage.run(float32, place)
    collect_after(float32)
    return float32


def _notes(subject: Subject) -> list[str]:
    """On which inputs the source itself gives NaN, and that pruning won nothing."""
    odd = subject.steps[0].versus_source.nan_on if subject.steps else ()
    told = [f"the source itself gives NaN on {listed(odd)}"] if odd else []
    return [*told, *_pruned_in_vain(subject)]


def _pruned_in_vain(subject: Subject) -> list[str]:
    """Told by the sizes of the files: a stopwatch finds a gain of some percent in equal work now and then."""
    options, steps = subject.options, subject.steps
    pruned = [place for place, step in enumerate(steps) if step.stage.startswith("prune")]
    if not pruned or pruned[0] == 0:
        return []
    before, after = (steps[place].size_bytes for place in (pruned[0] - 1, pruned[0]))
    if after < _SMALLER * before:
        return []
    asked = {"--prune": options.prune, "--prune-channels": options.prune_channels,
             "--target-latency": options.target_latency}  # fmt: skip
    flag = next((f"{name} {value}" for name, value in asked.items() if value is not None), "pruning")
    return [
        f"{flag} made nothing smaller or faster here: zeros are stored and multiplied as other numbers are; "
        f"--prune-channels 0.3 takes whole channels out, and a compressed file or a sparse runtime gains from zeros"
    ]
