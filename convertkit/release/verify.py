"""Whether a release, or a folder that an export has delivered, is what was published: hashes, signature, replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import files_of, sha256_of
from convertkit.errors import ConvertKitError, IntegrityError, MissingFramework, SourceError
from convertkit.looking.tables import Shown, Table
from convertkit.progress import Progress, Silent
from convertkit.release import bom, golden, signing
from convertkit.release.names import BOM, PROVENANCE, RELEASE, SIGNATURE, SUMS
from convertkit.report.jsonable import jsonable
from convertkit.result import MANIFEST, REPORT, Result, delivered_in, load, read_json
from convertkit.stage import GoldenTarget
from convertkit.telemetry import without_telemetry

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; ``passed`` is None for what could not be checked, which ``sentence`` explains."""

    name: str
    passed: bool | None
    sentence: str


@dataclass(frozen=True, slots=True, repr=False)
class Integrity(Shown):
    """What :func:`verify_release` has found."""

    path: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing that was checked has failed."""
        return all(each.passed is not False for each in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """What has failed."""
        return tuple(each for each in self.checks if each.passed is False)

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        skipped = sum(each.passed is None for each in self.checks)
        more = f", {skipped} not run" if skipped else ""
        if self.passed:
            return f"{self.path}: as it was published, {len(self.checks) - skipped} checks{more}"
        return f"{self.path}: NOT what was published, {len(self.failures)} of {len(self.checks)} checks fail{more}"

    def tables(self) -> tuple[Table, ...]:
        """A row for each check."""
        words = {True: "ok", False: "FAIL", None: "not run"}
        rows = tuple((words[each.passed], each.name, each.sentence) for each in self.checks)
        return (Table("", ("", "", ""), rows),)

    def as_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it."""
        return {"path": str(self.path), "passed": self.passed, "checks": jsonable(self.checks)}


@without_telemetry()
def verify_release(
    folder: str | PathLike[str], key: str | PathLike[str] | None = None, progress: Progress | None = None
) -> Integrity:
    """Look at every hash, at the signature, and replay the golden vectors on the runtimes that are here.

    Raises ``SourceError`` for what is neither a release nor a delivered folder; :func:`failure` is the error of what is
    not as it was published.

    Args:
        folder: a release, the folder of one of its cells, or what an export has delivered.
        key: a public key in PEM, by which the release has to be signed.
        progress: told of what is being done.

    """
    told = progress or Silent()
    path = Path(fspath(folder)).expanduser()
    public = None if key is None else Path(fspath(key)).expanduser()
    if public is not None:
        signing.check_key(public)
    if (path / RELEASE).exists() or (path / SUMS).exists():
        return Integrity(path, tuple(_of_release(path, public, told)))
    if (delivered_in(path) / MANIFEST).exists():
        return Integrity(path, tuple(_of_folder(delivered_in(path), public)))
    raise SourceError(f"{path} is neither a release ({RELEASE}) nor what an export has delivered ({MANIFEST})")


def failure(found: Integrity) -> IntegrityError | None:
    """The error that ends a verification which has found something; None where nothing failed."""
    if found.passed:
        return None
    told = "\n".join(f"{each.name}: {each.sentence}" for each in found.failures)
    return IntegrityError(f"{found.path} is not what was published\n{told}")


def _of_release(path: Path, key: Path | None, progress: Progress) -> Iterator[Check]:
    progress.status("hashing")
    yield _signature(path, key)
    of_sums = tuple(_sums(path))
    yield from of_sums
    told = {each.name for each in of_sums if each.passed is False}
    try:
        release = read_json(path / RELEASE)
        cells = [cell for cell in release["cells"] if cell["artifact"] is not None]
        yield from _listed(path, release["files"], told)
        yield _bill(path, cells)
        yield _statement(path, cells)
    except (ConvertKitError, KeyError, TypeError, AttributeError, IndexError) as error:
        if RELEASE not in told:
            yield Check(RELEASE, False, f"is not what a release holds: {error}")
        return
    for cell in progress.track(cells, len(cells), "replaying golden vectors"):
        yield _cell(path, cell)


def _signature(path: Path, key: Path | None) -> Check:
    if not (path / SIGNATURE).is_file():
        if key is not None:
            return Check(SIGNATURE, False, "the release is not signed")
        return Check(SIGNATURE, None, "the release is not signed")
    if key is None:
        return Check(SIGNATURE, None, "the release is signed; give the public key to check that")
    if not (path / SUMS).is_file() or not signing.is_signed_by(path, key):
        return Check(SIGNATURE, False, f"is not the signature of {SUMS} by {key.name}")
    return Check(SIGNATURE, True, f"by {key.name}")


def _sums(path: Path) -> Iterator[Check]:
    """Every file against ``SHA256SUMS``, one check for each that is not as it was."""
    if not (path / SUMS).is_file():
        yield Check(SUMS, False, "is gone")
        return
    lines = (path / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    listed = dict(line.split("  ", 1)[::-1] for line in lines if "  " in line)
    there = {file.relative_to(path).as_posix() for file in files_of(path)} - {SUMS, SIGNATURE}
    wrong = [
        *_differing(path, listed),
        *(Check(name, False, "is not of the release") for name in sorted(there - set(listed))),
    ]
    yield from wrong
    if not wrong:
        yield Check(SUMS, True, f"{len(listed)} files")


def _differing(path: Path, listed: Mapping[str, str]) -> Iterator[Check]:
    for name, digest in listed.items():
        file = path / name
        if path.resolve() not in file.resolve().parents:
            yield Check(name, False, "lies outside of the release")
        elif not file.is_file():
            yield Check(name, False, "is gone")
        elif sha256_of(file) != digest:
            yield Check(name, False, "has changed: its sha256 is another")


def _listed(path: Path, files: Mapping[str, Json], told: AbstractSet[str]) -> Iterator[Check]:
    """The files against release.json, which a new ``SHA256SUMS`` does not cover up; ``told`` is not told again."""
    wrong = [*_differing(path, {name: str(entry["sha256"]) for name, entry in files.items()})]
    yield from (Check(each.name, False, f"{each.sentence} ({RELEASE})") for each in wrong if each.name not in told)
    if not wrong:
        yield Check(RELEASE, True, f"{len(files)} files")


def _bill(path: Path, cells: list[Json]) -> Check:
    found = bom.digests(read_json(path / BOM))
    wanted = {cell["name"]: cell["artifact"]["sha256"] for cell in cells}
    if found != wanted:
        names = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        return Check(BOM, False, f"names other artifacts than the release: {', '.join(names)}")
    return Check(BOM, True, f"{len(found)} artifacts")


def _statement(path: Path, cells: list[Json]) -> Check:
    subjects = {each["name"]: each["digest"]["sha256"] for each in read_json(path / PROVENANCE)["subject"]}
    wanted = {cell["artifact"]["file"]: cell["artifact"]["sha256"] for cell in cells}
    if subjects != wanted:
        return Check(PROVENANCE, False, "is about other artifacts than the release's")
    return Check(PROVENANCE, True, f"{len(subjects)} artifacts")


def _cell(path: Path, cell: Json) -> Check:
    """The artifact's own manifest, and its answers to the golden vectors."""
    name = str(cell["name"])
    try:
        result = load(path / str(cell["folder"]))
        if cell["golden"] is None:
            return Check(name, None, "has no golden vectors to replay")
        samples = golden.read(path / str(cell["golden"]["file"]))
        wrong = golden.replayed(result, samples, cell["golden"]["within"])
    except MissingFramework as missing:
        return Check(name, None, f"could not be run: {missing}")
    except ConvertKitError as error:
        return Check(name, False, str(error))
    if wrong:
        return Check(name, False, "; ".join(wrong))
    return Check(name, True, f"{len(samples)} golden vectors{_elsewhere(result)}")


def _elsewhere(result: Result) -> str:
    """What to say where the runtime that answered is not the target's own."""
    told = {"here": "", "simulated": ", simulated"}
    return told.get(str(result.report.get("execution")), f", not on {result.target}")


def _of_folder(path: Path, key: Path | None) -> Iterator[Check]:
    """A folder that an export has delivered: its manifest lists all but the reports."""
    if key is not None:
        yield Check("signature", False, "a folder of one export is not signed; releases are")
    try:
        files = {name: str(entry["sha256"]) for name, entry in read_json(path / MANIFEST)["files"].items()}
    except (ConvertKitError, KeyError, TypeError, AttributeError) as error:
        yield Check(MANIFEST, False, f"is not what an export writes: {error}")
        return
    there = {file.relative_to(path).as_posix() for file in files_of(path)} - {MANIFEST, REPORT, "report.html"}
    others = (Check(name, False, "is not of the export") for name in sorted(there - set(files)))
    wrong = [*_differing(path, files), *others]
    yield from wrong
    if wrong:
        return
    yield Check(MANIFEST, True, f"{len(files)} files")
    try:
        yield _replayed(load(path))
    except MissingFramework as missing:
        yield Check(path.name, None, f"could not be run: {missing}")
    except ConvertKitError as error:
        yield Check(path.name, False, str(error))


def _replayed(result: Result) -> Check:
    """What an artifact answers to golden vectors, where its target delivers some; else whether it loads."""
    name, elsewhere = result.artifact.path.name, _elsewhere(result)
    target = plugins.target(result.target) if result.target in plugins.target_names() else None
    if isinstance(target, GoldenTarget):
        found = target.replay(result.artifact, result.precision)
        return Check(name, not found.wrong, "; ".join(found.wrong) or f"{found.vectors} golden vectors{elsewhere}")
    with plugins.runner(result.artifact):
        return Check(name, True, f"loads{elsewhere}; it has no golden vectors that are replayed here")
