"""A Maven repository of one version of one AAR: POM, Gradle's module metadata, the list of versions, checksums."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from xml.sax.saxutils import escape

DIGESTS = ("md5", "sha1", "sha256", "sha512")
_UPDATED = "19800101000000"
"""Of the list of versions: a fixed time, so that the same model gives the same bytes."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """``group:artifact:version`` as Gradle writes it."""

    group: str
    artifact: str
    version: str

    @classmethod
    def of(cls, text: str) -> Coordinates:
        """From ``group:artifact:version``."""
        return cls(*text.split(":"))

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def folder(self) -> str:
        """Of all versions, in a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}"

    @property
    def file(self) -> str:
        """The name of this version's files, without an ending."""
        return f"{self.artifact}-{self.version}"


def repository(made: Coordinates, aar: bytes, runtime: Coordinates, description: str) -> dict[str, bytes]:
    """The repository's files by their paths; who depends on the AAR gets ``runtime``, too."""
    place = f"{made.folder}/{made.version}/{made.file}"
    files = {
        f"{place}.aar": aar,
        f"{place}.pom": _pom(made, runtime, description).encode(),
        f"{place}.module": _module(made, aar, runtime).encode(),
        f"{made.folder}/maven-metadata.xml": _versions(made).encode(),
    }
    return files | {f"{path}.{kind}": digest(kind, data) for path, data in files.items() for kind in DIGESTS}


def digest(kind: str, data: bytes) -> bytes:
    """What a checksum file holds."""
    return hashlib.new(kind, data, usedforsecurity=False).hexdigest().encode()


def _pom(made: Coordinates, runtime: Coordinates, description: str) -> str:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 http://maven.apache.org/xsd/maven-4.0.0.xsd">
  <!-- do_not_remove: published-with-gradle-metadata -->
  <modelVersion>4.0.0</modelVersion>
  <groupId>{escape(made.group)}</groupId>
  <artifactId>{escape(made.artifact)}</artifactId>
  <version>{escape(made.version)}</version>
  <packaging>aar</packaging>
  <description>{escape(description)}</description>
  <dependencies>
    <dependency>
      <groupId>{escape(runtime.group)}</groupId>
      <artifactId>{escape(runtime.artifact)}</artifactId>
      <version>{escape(runtime.version)}</version>
      <scope>compile</scope>
    </dependency>
  </dependencies>
</project>
"""


def _module(made: Coordinates, aar: bytes, runtime: Coordinates) -> str:
    """Source: Gradle, Module Metadata specification, format version 1.1."""
    needs = {"group": runtime.group, "module": runtime.artifact, "version": {"requires": runtime.version}}
    name = f"{made.file}.aar"
    file = {"name": name, "url": name, "size": len(aar)}
    file |= {kind: digest(kind, aar).decode() for kind in reversed(DIGESTS)}
    variants = [
        {
            "name": f"release{kind}Publication",
            "attributes": {
                "org.gradle.category": "library",
                "org.gradle.dependency.bundling": "external",
                "org.gradle.libraryelements": "aar",
                "org.gradle.usage": f"java-{kind.lower()}",
            },
            "dependencies": [needs],
            "files": [file],
        }
        for kind in ("Api", "Runtime")
    ]
    component = {"group": made.group, "module": made.artifact, "version": made.version}
    component |= {"attributes": {"org.gradle.status": "release"}}  # type: ignore[dict-item]
    return json.dumps({"formatVersion": "1.1", "component": component, "variants": variants}, indent=2) + "\n"


def _versions(made: Coordinates) -> str:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>{escape(made.group)}</groupId>
  <artifactId>{escape(made.artifact)}</artifactId>
  <versioning>
    <latest>{escape(made.version)}</latest>
    <release>{escape(made.version)}</release>
    <versions>
      <version>{escape(made.version)}</version>
    </versions>
    <lastUpdated>{_UPDATED}</lastUpdated>
  </versioning>
</metadata>
"""
