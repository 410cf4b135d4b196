"""How long a call of one open model takes, and each of its nodes where the runtime tells."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.errors import ToolError, UsageError
from convertkit.findings.latency import PreparedRunner, measure_latency
from convertkit.looking.opened import ONNX_FILES, Opened
from convertkit.looking.tables import Table
from convertkit.operators import NodeTime
from convertkit.stage import Feed, Runner
from convertkit.state import with_state

_TIMED = frozenset({"onnx", "onnxruntime", "openvino", "tflite"})
"""Formats whose runtime here is one that will run them elsewhere."""
_MOST_ROWS = 25


@dataclass(frozen=True, slots=True)
class Timed:
    """Median milliseconds of a call, over how many rounds, and the time of each node where the runtime tells."""

    ms: float
    rounds: int
    nodes: tuple[NodeTime, ...]

    def tables(self) -> tuple[Table, ...]:
        """The call, and the slowest nodes in the order in which they run."""
        whole = Table("time", ("", "ms"), (("a call", f"{self.ms:.3f}"),), (1,))
        return whole, node_table(self.nodes)


def node_table(nodes: tuple[NodeTime, ...]) -> Table:
    """The slowest nodes in the order in which they run."""
    slowest = {id(node) for node in sorted(nodes, key=lambda node: -node.ms)[:_MOST_ROWS]}
    total = sum(node.ms for node in nodes) or 1.0
    rows = [
        (node.name, node.kind, f"{node.ms:.3f}", f"{100 * node.ms / total:.1f} %")
        for node in nodes
        if id(node) in slowest
    ]
    title = "time by node, as the runtime fuses them"
    if len(nodes) > len(rows):
        title = f"the {len(rows)} slowest of {len(nodes)} nodes, as the runtime fuses them"
    return Table(title, ("name", "operator", "ms", "share"), tuple(rows), (2, 3))


def as_run(found: Opened) -> Artifact:
    """The artifact as its users run it; ``UsageError`` for what no runtime here stands for."""
    artifact = found.artifact
    if artifact.format not in _TIMED:
        raise UsageError(
            f"{found.title} is {artifact.format}: time is measured of ONNX, TFLite and OpenVINO files, "
            "whose runtime here is the one that users run\n  try   convertkit export, and the folder that it delivers"
        )
    if artifact.format != "onnx":
        return artifact

    return replace(artifact, format="onnxruntime")  # with optimisations, as users run it


def one_feed(artifact: Artifact, seed: int = 0) -> Feed:
    """Generated inputs of the first sizes that the model takes, state included; ``ToolError`` where it takes none."""
    from convertkit.onnx.index_bounds import with_index_bounds
    from convertkit.parity.feeds import proof_feeds
    from convertkit.parity.free_sizes import attempts

    readable = replace(artifact, format="onnx") if artifact.format in ONNX_FILES else artifact
    drawn = with_index_bounds(readable, artifact.inputs)
    refusal: ToolError | None = None
    for attempt in range(attempts(artifact.inputs)):
        feed = proof_feeds(drawn, None, seed, attempt, brief=True)[0]
        full = with_state(artifact, feed)
        try:
            with plugins.runner(artifact) as runner:
                runner.run(full)
        except ToolError as error:
            refusal = refusal or error
        else:
            return full
    raise refusal or ToolError(f"{artifact.path.name} takes none of the inputs that can be generated")


def timed_alone(found: Opened) -> Timed:
    """Time calls on generated inputs."""
    artifact = as_run(found)
    feed = one_feed(artifact)
    measured = measure_latency(artifact, feed)
    return Timed(measured.artifact_ms, measured.rounds, profile(artifact, feed))


def profile(artifact: Artifact, feed: Feed) -> tuple[NodeTime, ...]:
    """The time of each node; none where the runtime does not tell it."""
    if artifact.format != "onnxruntime":
        return ()
    from convertkit.onnx.profiling import node_times

    specs = {spec.name: spec for spec in artifact.inputs}
    given = {name: specs[name].encode(value) for name, value in feed.items() if name in specs}
    with tempfile.TemporaryDirectory(prefix="convertkit-profile-") as place:
        return node_times(artifact, given, Path(place))


@runtime_checkable
class ThreadedRunner(Protocol):
    """A runner whose runtime takes a number of threads."""

    def with_threads(self, count: int) -> Runner:
        """The same, not yet open, with so many threads."""
        ...


def runner_of(artifact: Artifact, threads: int | None) -> Runner:
    """What runs an artifact; ``UsageError`` where its runtime cannot be told how many threads."""
    runner = plugins.runner(artifact)
    if threads is None:
        return runner
    if not isinstance(runner, ThreadedRunner):
        raise UsageError(f"the runtime of {artifact.format} does not take a number of threads")
    return runner.with_threads(threads)


def prepared(runner: Runner, feed: Feed) -> Callable[[], object]:
    """A call that computes everything for a feed that lies in its place."""
    return runner.invocation(feed) if isinstance(runner, PreparedRunner) else partial(runner.run, feed)
