"""The bill of materials of a release: CycloneDX 1.6 with a model card for each artifact."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convertkit import __version__
from convertkit.result import read_json

_NAMESPACE = uuid.UUID("6f1d3a5e-8f0c-5c1b-9a57-2f6a1f0b7c11")
Json = dict[str, Any]


def bom(folder: Path, name: str, version: str | None, models: Sequence[Json], cells: Sequence[Json]) -> Json:
    """The document for the release in ``folder``, whose ``models`` and ``cells`` are those of release.json.

    Source: CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/.  It holds neither times nor machines, and its serial
    number is made of its content.
    """
    made = [cell for cell in cells if cell["artifact"] is not None]
    licenses = {model["name"]: model["license"] for model in models}
    body: Json = {
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "convertkit", "version": __version__}]},
            "component": {"type": "application", "bom-ref": "release", "name": name, "version": version or "0"},
        },
        "components": [
            *(_source(model) for model in models if model["source"]["sha256"]),
            *(_artifact(folder, cell, licenses[cell["model"]], version) for cell in made),
        ],
        "dependencies": [
            {"ref": "release", "dependsOn": [_ref(cell) for cell in made]},
            *({"ref": _ref(cell), "dependsOn": [f"source:{cell['model']}"]} for cell in made),
        ],
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    serial = uuid.uuid5(_NAMESPACE, digest)
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


def digests(document: Mapping[str, Any]) -> dict[str, str]:
    """What the document says of each artifact: sha256 by the cell's name."""
    return {
        each["bom-ref"].removeprefix("artifact:"): each["hashes"][0]["content"]
        for each in document["components"]
        if each["bom-ref"].startswith("artifact:")
    }


def _ref(cell: Json) -> str:
    return f"artifact:{cell['name']}"


def _source(model: Json) -> Json:
    return {
        "type": "machine-learning-model",
        "bom-ref": f"source:{model['name']}",
        "name": model["source"]["file"],
        "hashes": _hashes(model["source"]["sha256"]),
        **_licensed(model["license"]),
    }


def _artifact(folder: Path, cell: Json, license: str | None, version: str | None) -> Json:
    manifest = read_json(folder / cell["folder"] / "manifest.json")
    report = read_json(folder / cell["folder"] / "report.json")
    return {
        "type": "machine-learning-model",
        "bom-ref": _ref(cell),
        "name": cell["name"],
        **({"version": version} if version else {}),
        "hashes": _hashes(cell["artifact"]["sha256"]),
        **_licensed(license),
        "modelCard": {
            "modelParameters": {
                "inputs": [{"format": _format(spec)} for spec in manifest["artifact"]["inputs"]],
                "outputs": [{"format": _format(spec)} for spec in manifest["artifact"]["outputs"]],
            },
            "quantitativeAnalysis": {"performanceMetrics": _metrics(report)},
        },
        "properties": [
            {"name": "convertkit:target", "value": cell["target"]},
            {"name": "convertkit:precision", "value": cell["precision"]},
            {"name": "convertkit:file", "value": cell["artifact"]["file"]},
        ],
    }


def _metrics(report: Mapping[str, Any]) -> list[Json]:
    """Accuracy and agreement, which do not change from run to run."""
    found = []
    if (evaluation := report["evaluation"]) is not None:
        found.append({"type": evaluation["metric"], "value": f"{evaluation['after']:.6g}"})
    if (quality := report["quality"]) is not None and quality["agreement"] is not None:
        found.append({"type": "agreement with float32", "value": f"{quality['agreement']:.6g}"})
    return found


def _hashes(digest: str) -> list[Json]:
    return [{"alg": "SHA-256", "content": digest}]


def _licensed(license: str | None) -> Json:
    return {} if license is None else {"licenses": [{"expression": license}]}


def _format(spec: Mapping[str, Any]) -> str:
    return f"{spec['dtype']}[{','.join(map(str, spec['shape']))}] {spec['name']}"
