"""A target's first stage, begun on ONNX that the source still checks.

A converter that tries several roads holds each result against the model before it delivers it.  Most are right, and
what checks them spends its time in runtimes: meanwhile the target's file is made of the same ONNX.  It counts only if
the source delivers that ONNX to the byte, and is proven as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from convertkit import plugins
from convertkit.ahead import Ahead
from convertkit.artifact import Artifact
from convertkit.pipeline import Made, Task, is_small, made
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext, Stage, Target


@dataclass(frozen=True, slots=True)
class Early:
    """The stages of a target, the first of which makes something of the ONNX with this ``sha256``."""

    target: str
    stages: tuple[Stage, ...]
    sha256: str
    made: Callable[[], Made]


def begun(
    options: ExportOptions,
    targets: Sequence[Target],
    artifact: Artifact,
    source_sha256: str,
    workdir: Path,
    progress: Progress,
    ahead: Ahead,
) -> Early | None:
    """Begin, where nothing stands between the source's ONNX and the one target, whose first stage is lossless."""
    if len(targets) != 1 or options.static or options.calib is not None or not is_small(artifact):
        return None
    context = BuildContext(options, targets[0], source_sha256, None, progress)
    stages = tuple(targets[0].stages(context))
    if not stages or stages[0].tolerance.lossy or any(each.stage(context) is not None for each in plugins.passes()):
        return None
    task = Task(stages[0], workdir / "early" / stages[0].name)
    return Early(targets[0].name, stages, artifact.sha256, ahead.begin(partial(made, task, artifact)))
