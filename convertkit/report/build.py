"""From finished steps to ``report.json``: plain dictionaries in the published schema's shape."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from convertkit import __version__, plugins
from convertkit.artifact import Artifact
from convertkit.budget import Point
from convertkit.findings.command import command
from convertkit.findings.precision import Effective
from convertkit.findings.runtimes import source_runtime
from convertkit.findings.values import Findings, Interface, Latency, Quality
from convertkit.parity.values import ParityReport
from convertkit.recipe import ExportOptions
from convertkit.records import Evaluation, StepRecord
from convertkit.report.jsonable import jsonable
from convertkit.stage import FeedSource
from convertkit.target_options import texts

SCHEMA = 1
_REPORTED = (
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnxruntime",
    "ai-edge-litert",
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "jax",
    "jaxlib",
)

Json = Any


def build(
    source: Artifact,
    target: str,
    options: ExportOptions,
    steps: Sequence[StepRecord],
    evaluation: Evaluation | None,
    found: Findings,
    data: Mapping[str, FeedSource | None],
    notes: Sequence[str],
    failure: str,
    trade_off: Sequence[Point] = (),
) -> dict[str, Json]:
    """The whole report; ``data`` is calibration and evaluation, ``failure`` the sentence that ended it, if any.

    ``trade_off`` are the points that ``--budget`` chose from.
    """
    return {
        "schema": SCHEMA,
        "convertkit": __version__,
        "source": {**describe(source, source.size_bytes), "runtime": source_runtime(source)},
        "target": target,
        "precision": options.precision,
        "command": command(options, target),
        "target_options": texts(plugins.target(target), options),
        "packaged_options": packaged_options(target, options),
        "seed": options.seed,
        "data": {role: None if each is None else _data(each) for role, each in data.items()},
        "runs_here": found.execution == "here",
        "execution": found.execution,
        "steps": [_step(step) for step in steps],
        "evaluation": None if evaluation is None else {**jsonable(evaluation), "passed": evaluation.passed},
        "effective": _effective(found.effective),
        "interface": None if found.interface is None else _interface(found.interface),
        "quality": None if found.quality is None else _quality(found.quality),
        "latency": None if found.latency is None else _latency(found.latency),
        "estimates": jsonable(found.estimates),
        "trade_off": [{**jsonable(point), "told": point.told} for point in trade_off],
        "operators": jsonable(found.operators),
        "times": jsonable(found.times),
        "depth": jsonable(found.depth),
        "providers": jsonable(found.providers),
        "sizes": jsonable(found.sizes),
        "environment": environment(),
        "notes": [*notes, *found.notes, *(str(note) for step in steps for note in _told(step))],
        "failure": failure,
        "passed": not failure,
    }


def packaged_options(target: str, options: ExportOptions) -> dict[str, Json]:
    """All options of the targets whose artifact ``target`` packages, by their names; of those that have some."""
    *inner, _ = plugins.parts_of(plugins.target(target), options)
    return {part.name: found for part in inner if (found := texts(part, options))}


def _data(data: FeedSource) -> dict[str, Json]:
    return {"description": Path(data.description).name, "samples": len(data), "sha256": data.sha256}


def _effective(became: Effective | None) -> dict[str, Json] | None:
    return None if became is None else {**jsonable(became), "sentence": became.sentence}


def _quality(quality: Quality) -> dict[str, Json]:
    return {**jsonable(quality), "weak": quality.weak, "where": quality.where}


def _interface(interface: Interface) -> dict[str, Json]:
    sides = {"inputs": interface.inputs, "outputs": interface.outputs}
    return {side: [{**jsonable(port), "sentence": port.sentence} for port in ports] for side, ports in sides.items()}


def _latency(latency: Latency) -> dict[str, Json]:
    return {**jsonable(latency), "slower": latency.slower, "verdict": latency.verdict}


def _told(step: StepRecord) -> Iterable[object]:
    """What a step's diagnosis says that the result should, too."""
    notes = (step.diagnosis or {}).get("notes", ())
    return notes if isinstance(notes, list) else ()


def describe(artifact: Artifact, size_bytes: int) -> dict[str, Json]:
    """An artifact without its folder: reports travel, paths of one machine do not."""
    return {
        "path": artifact.path.name,
        "format": artifact.format,
        "sha256": artifact.sha256,
        "bytes": size_bytes,
        "inputs": [_spec(spec) for spec in artifact.inputs],
        "outputs": [_spec(spec) for spec in artifact.outputs],
    }


@cache
def environment() -> dict[str, Json]:
    """What the run depended on: versions, processor, cores."""
    versions = {}
    for name in _REPORTED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": _system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": versions,
    }


def _system() -> str:
    """Kernel and C library; ``platform.platform`` says the same and starts a process for what it leaves out."""
    kernel, (name, version) = os.uname(), platform.libc_ver()
    return f"{kernel.sysname}-{kernel.release}" + (f"-with-{name}{version}" if name else "")


def _processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel writes it, else its kind: ``platform.processor`` starts a process to ask."""
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def _spec(spec: Any) -> dict[str, Json]:
    return {
        "name": spec.name,
        "shape": list(spec.shape),
        "dtype": spec.dtype,
        "source_shape": list(spec.source_shape),
        "perm": list(spec.perm),
        "quantization": None if spec.quantization is None else asdict(spec.quantization),
        "labels": list(spec.labels),
    }


def _step(step: StepRecord) -> dict[str, Json]:
    described: dict[str, Json] = {
        "stage": step.stage,
        "version": step.version,
        "options": jsonable(step.options),
        "notes": [*step.versus_previous.warnings],
        "seconds": round(step.seconds, 4),
        "cached": step.cached,
        "parity_seconds": round(step.parity_seconds, 4),
        "peak_rss_bytes": step.peak_rss_bytes,
        "artifact": {**describe(step.artifact, step.size_bytes), "runtime": step.runtime},
        "parity": {
            "versus_previous": _parity(step.versus_previous),
            "versus_source": _parity(step.versus_source),
        },
    }
    if step.diagnosis is not None:
        described["diagnosis"] = jsonable(step.diagnosis)
    return described


def _parity(report: ParityReport) -> dict[str, Json]:
    return {
        "passed": report.passed,
        "before": report.before,
        "after": report.after,
        "feeds": report.feeds,
        "tolerance": jsonable(report.tolerance),
        "failures": list(report.failures),
        "warnings": list(report.warnings),
        "unproven": report.unproven,
        "waived": report.waived,
        "edges": list(report.edges),
        "explained": list(report.explained),
        "tensors": [jsonable(diff) for diff in report.diffs],
    }
