"""Whether a finished package is what build tools and phones need, member by member."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from convertkit.errors import SourceError, ToolError
from convertkit.targets.android.aar import ASSETS
from convertkit.targets.android.archive import PAGE, members_of
from convertkit.targets.android.maven import DIGESTS, Coordinates, digest
from convertkit.targets.android.runtimes import RUNTIMES
from convertkit.targets.mobile.deflated import DEFLATED, inflated

_NEEDED = ("AndroidManifest.xml", "R.txt", "classes.jar", "proguard.txt")
_POM = "{http://maven.apache.org/POM/4.0.0}"


_SUFFIXES = tuple(f"{each.suffix}{packed}" for each in RUNTIMES.values() for packed in ("", DEFLATED))


def packaged_model(path: Path) -> bytes:
    """The model in an AAR, decoded; ``SourceError`` where there is none, or a phone could not read it where it lies."""
    found = [
        (name, member)
        for name, member in members_of(path).items()
        if name.startswith(ASSETS) and name.endswith(_SUFFIXES)
    ]
    if len(found) != 1:
        raise SourceError(f"{path.name} has {len(found)} models among its assets, expected one")
    name, member = found[0]
    if name.endswith(DEFLATED):
        return inflated(member.data, f"{path.name}: {name}")
    if not member.stored or member.offset % PAGE:
        where = f"begins at byte {member.offset}" if member.stored else "is compressed"
        raise SourceError(f"{path.name}: {name} {where}; it has to be stored at a multiple of {PAGE}")
    return member.data


def check_package(folder: Path, aar: Path, made: Coordinates, runtime: Coordinates) -> None:
    """``ToolError`` that names every fault of the AAR and of the Maven repository beside it."""
    faults = [*_of_aar(aar), *_of_repository(folder / "maven", aar, made, runtime)]
    if faults:
        raise ToolError(f"the Android package is not right: {'; '.join(faults)}")


def _of_aar(path: Path) -> Iterator[str]:
    try:
        packaged_model(path)
    except SourceError as error:
        yield str(error)
    members = members_of(path)
    yield from (f"{path.name} lacks {name}" for name in _NEEDED if name not in members)
    if "AndroidManifest.xml" in members:
        root = ET.fromstring(members["AndroidManifest.xml"].data)
        if root.tag != "manifest" or not root.get("package"):
            yield "AndroidManifest.xml names no package"


def _of_repository(maven: Path, aar: Path, made: Coordinates, runtime: Coordinates) -> Iterator[str]:
    place = maven / made.folder / made.version
    if (place / f"{made.file}.aar").read_bytes() != aar.read_bytes():
        yield "the repository holds another AAR"
    for file in sorted(path for path in maven.rglob("*") if path.is_file()):
        kind = file.suffix[1:]
        if kind in DIGESTS:
            if file.read_bytes() != digest(kind, file.with_suffix("").read_bytes()):
                yield f"{file.name} is not the checksum of its file"
        elif missing := [each for each in DIGESTS if not file.with_name(f"{file.name}.{each}").is_file()]:
            yield f"{file.name} has no {missing[0]}"
    yield from _of_pom(place / f"{made.file}.pom", made, runtime)
    yield from _of_module(place, made, runtime)


def _of_pom(path: Path, made: Coordinates, runtime: Coordinates) -> Iterator[str]:
    root = ET.fromstring(path.read_bytes())
    dependency = root.find(f"{_POM}dependencies/{_POM}dependency")
    told = [_coordinates(root), None if dependency is None else _coordinates(dependency)]
    if told != [str(made), str(runtime)] or root.findtext(f"{_POM}packaging") != "aar":
        yield f"the POM is of {told[0]} with {told[1]}"


def _coordinates(element: ET.Element) -> str:
    return ":".join(element.findtext(f"{_POM}{name}", "") for name in ("groupId", "artifactId", "version"))


def _of_module(place: Path, made: Coordinates, runtime: Coordinates) -> Iterator[str]:
    """Gradle's metadata agrees with the POM and with the file that it describes."""
    found = json.loads((place / f"{made.file}.module").read_bytes())
    told = found["component"]
    if Coordinates(told["group"], told["module"], told["version"]) != made:
        yield "the module metadata is of other coordinates than the POM"
    for variant in found["variants"]:
        (needed,) = variant["dependencies"]
        if Coordinates(needed["group"], needed["module"], needed["version"]["requires"]) != runtime:
            yield f"{variant['name']} needs another library than the POM"
        (file,) = variant["files"]
        data = (place / file["url"]).read_bytes()
        hashed = {kind: hashlib.new(kind, data, usedforsecurity=False).hexdigest() for kind in DIGESTS}
        if (file["size"], *(file[kind] for kind in DIGESTS)) != (len(data), *hashed.values()):
            yield f"{variant['name']} describes another file than {file['url']}"
