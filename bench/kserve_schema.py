"""The part of KServe's CRD that our InferenceService uses, as a JSON schema that takes no other field.

    python bench/kserve_schema.py serving.kserve.io_inferenceservices.yaml [inferenceservice.yaml …]

The first file is ``config/crd/full/`` of KServe's repository.  Prints the schema that
``tests/targets/serving/inferenceservice.schema.json`` holds.  Resources that are named are validated against the whole
schema of their version, in which unknown fields are errors, too; the exit code is 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

VERSION = "v1beta1"
FIELDS: dict[str, Any] = {
    "apiVersion": {},
    "kind": {},
    "metadata": {"name": {}},
    "spec": {
        "predictor": {
            "minReplicas": {},
            "model": {
                "modelFormat": {"name": {}, "version": {}},
                "runtime": {},
                "protocolVersion": {},
                "storageUri": {},
                "resources": {"requests": {}, "limits": {}},
            },
        }
    },
}
KEPT = ("type", "required", "format", "pattern", "anyOf", "additionalProperties")


def of_version(crd: dict[str, Any]) -> dict[str, Any]:
    """The schema of the version that we write."""
    (found,) = (each for each in crd["spec"]["versions"] if each["name"] == VERSION)
    schema: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return schema


def part(schema: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Of ``schema`` only ``fields``, without descriptions."""
    kept = {key: schema[key] for key in KEPT if key in schema}
    if not fields:
        return kept
    known = schema.get("properties", {})
    properties = {name: part(known.get(name, {"type": "string"}), below) for name, below in fields.items()}
    return {**kept, "properties": properties, "additionalProperties": False}


def strict(schema: Any) -> Any:
    """The same, in which a field that is not named is an error; what KServe itself leaves open stays open."""
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        closed["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        if "additionalProperties" not in schema and "x-kubernetes-preserve-unknown-fields" not in schema:
            closed["additionalProperties"] = False
    return closed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("crd", type=Path)
    parser.add_argument("resources", type=Path, nargs="*")
    options = parser.parse_args()
    schema = of_version(yaml.load(options.crd.read_text(), yaml.CSafeLoader))
    if not options.resources:
        print(json.dumps(part(schema, FIELDS), indent=1))
        return 0
    failed = False
    checker = jsonschema.Draft202012Validator(strict(schema))
    for path in options.resources:
        errors = [f"{each.json_path}: {each.message}" for each in checker.iter_errors(yaml.safe_load(path.read_text()))]
        print(f"{path}: {'; '.join(errors) or 'valid'}")
        failed = failed or bool(errors)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
