"""How a release was built, as an in-toto statement with SLSA's provenance; neither times nor machines."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from convertkit import __version__
from convertkit.report.build import environment
from convertkit.tasks.versions import code_version

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD = "urn:convertkit:release:1"
Json = dict[str, Any]


def statement(recipe: Mapping[str, Any], only: Sequence[str], models: Sequence[Json], cells: Sequence[Json]) -> Json:
    """The statement whose subjects are the artifacts.

    Source: in-toto attestation framework v1 and SLSA v1.0, whose ``runDetails.metadata`` (times, invocation) is left
    out: what it holds differs from run to run.
    """
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": cell["artifact"]["file"], "digest": {"sha256": cell["artifact"]["sha256"]}}
            for cell in cells
            if cell["artifact"] is not None
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"recipe": recipe, "only": list(only)},
                "internalParameters": {"python": platform.python_version(), "machine": platform.machine()},
                "resolvedDependencies": [*map(_source, models), *_packages()],
            },
            "runDetails": {
                "builder": {
                    "id": "urn:convertkit:run",
                    "version": {"convertkit": __version__, "code": code_version()},
                },
            },
        },
    }


def packages(document: Mapping[str, Any]) -> dict[str, str]:
    """Versions of the libraries that a statement names."""
    found = document["predicate"]["buildDefinition"]["resolvedDependencies"]
    return {each["name"]: each["annotations"]["version"] for each in found if "annotations" in each}


def _source(model: Json) -> Json:
    digest = model["source"]["sha256"]
    return {"name": model["source"]["file"], **({"digest": {"sha256": digest}} if digest else {})}


def _packages() -> list[Json]:
    return [
        {"name": name, "uri": f"pkg:pypi/{name}@{version}", "annotations": {"version": version}}
        for name, version in environment()["packages"].items()
    ]
