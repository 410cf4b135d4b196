"""How long each node of an ONNX model takes, by ONNX Runtime's own profiler."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import onnxruntime as ort

from convertkit.artifact import Array, Artifact
from convertkit.onnx.onnxruntime_compat import ERRORS
from convertkit.operators import NodeTime

_MOST_CALLS, _LEAST_CALLS, _SECONDS = 12, 2, 0.3
_KERNEL = "_kernel_time"


def node_times(artifact: Artifact, feed: Mapping[str, Array], folder: Path) -> tuple[NodeTime, ...]:
    """The nodes in the order in which they run; ``feed`` is in the artifact's layout, ``folder`` takes the profile."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    try:
        session = ort.InferenceSession(str(artifact.path), options, providers=["CPUExecutionProvider"])
    except ERRORS:  # an opset that ONNX's own evaluator runs instead, which tells no times
        return ()
    begun = time.perf_counter()
    for call in range(_MOST_CALLS):
        if call >= _LEAST_CALLS and time.perf_counter() - begun > _SECONDS:
            break
        session.run(None, dict(feed))
    try:
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    except json.JSONDecodeError:  # the disk was full, which what is written next will say
        return ()
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            seconds[event["name"].removesuffix(_KERNEL), event["args"].get("op_name", "")].append(event["dur"] / 1000)
    return tuple(NodeTime(name, kind, median(times)) for (name, kind), times in seconds.items())
