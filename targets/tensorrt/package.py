"""The files of a release package beside ``model.onnx``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.stage import FeedSource, NamedRunner
from convertkit.targets.tensorrt.capability import Capability, report
from convertkit.targets.tensorrt.constraints import Constraints
from convertkit.targets.tensorrt.readme import Facts, readme
from convertkit.targets.tensorrt.rtx import Engine
from convertkit.targets.tensorrt.shapes import Range, command
from convertkit.targets.tensorrt.sparsity import sparse_weights
from convertkit.targets.tensorrt.vectors import allowed, roundings, vectors, write_vectors

_SCRIPT = Path(__file__).with_name("build_engine.py")


def write_package(
    made: Artifact,
    model: ir.Model,
    found: Sequence[Capability],
    ranges: Sequence[Range],
    samples: FeedSource | None,
    seed: int,
    engine: Engine | None = None,
) -> None:
    """Write what goes with ``made``, which is saved from ``model``, into its folder; ``engine`` lies there already."""
    folder = made.path.parent
    sparse = sparse_weights(model)
    facts = Constraints.of(made, model, found, ranges, sparse)
    with plugins.runner(made) as runner:
        golden = vectors(made, runner, samples, seed, ranges)
        runtime = runner.runtime if isinstance(runner, NamedRunner) else made.format
    is_short = "bfloat16" in facts.precisions
    rounded = roundings(made, golden) if is_short else {}
    atol = {spec.name: allowed(spec, golden, rounded.get(spec.name)) for spec in made.outputs} if golden else {}
    if golden:
        write_vectors(golden, runtime, folder / "golden")
    missing = tuple(name for name, sizes in facts.dimensions.items() if not sizes)
    line = "" if missing else command(facts.file, made.inputs, ranges, sparse=bool(sparse))
    if line:
        (folder / "trtexec.txt").write_text(line, encoding="utf-8")
    described = {"vectors": len(golden), "computed_by": runtime, "atol": atol} if golden else None
    _write_json(folder / "constraints.json", {**facts.described(), "golden": described, **_told(engine)})
    _write_json(folder / "capability.json", report(found))
    shutil.copyfile(_SCRIPT, folder / _SCRIPT.name)
    refused = tuple(f"{each.name} ({each.operator}): {each.reason}" for each in found if not each.supported)
    least = (facts.at_least, facts.compute_capability)
    told = Facts(*least, missing, line, len(sparse), len(golden), atol, is_short, runtime, refused, engine)
    (folder / "README.md").write_text(readme(told), encoding="utf-8")


def _told(engine: Engine | None) -> dict[str, object]:
    return {} if engine is None else {"rtx_engine": engine.described()}


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
