"""The files of a release package beside ``model.onnx``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from convertkit.artifact import Artifact
from convertkit.stage import FeedSource
from convertkit.targets.tensorrt.capability import Capability, report
from convertkit.targets.tensorrt.constraints import Constraints
from convertkit.targets.tensorrt.golden import Golden
from convertkit.targets.tensorrt.readme import CHECK, Facts, readme
from convertkit.targets.tensorrt.rtx import Engine
from convertkit.targets.tensorrt.shapes import Range, command
from convertkit.targets.tensorrt.sparsity import sparse_weights

_BUILD = Path(__file__).with_name("build_engine.py")
_CHECK = Path(__file__).with_name(CHECK)


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
    golden = Golden.of(made, facts.precisions, ranges, samples, seed)
    if golden is not None:
        golden.write(folder / "golden")
        shutil.copyfile(_CHECK, folder / _CHECK.name)
    missing = tuple(name for name, sizes in facts.dimensions.items() if not sizes)
    typed = facts.typed
    told = not missing and typed is not None
    line = command(facts.file, made.inputs, ranges, sparse=bool(sparse), typed=typed or ()) if told else ""
    if line:
        (folder / "trtexec.txt").write_text(line, encoding="utf-8")
    described = {**facts.described(), "golden": golden and golden.described(), **_told(engine)}
    _write_json(folder / "constraints.json", described)
    _write_json(folder / "capability.json", report(found))
    shutil.copyfile(_BUILD, folder / _BUILD.name)
    refused = tuple(f"{each.name} ({each.operator}): {each.reason}" for each in found if not each.supported)
    least = (facts.at_least, facts.compute_capability)
    text = readme(Facts(*least, missing, line, len(sparse), golden, refused, engine, facts.narrowed))
    (folder / "README.md").write_text(text, encoding="utf-8")


def _told(engine: Engine | None) -> dict[str, object]:
    return {} if engine is None else {"rtx_engine": engine.described()}


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
