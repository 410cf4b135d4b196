"""What users give in the place of a model, and the sentence that helps: read as bytes, nothing is executed."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://\S+", re.IGNORECASE)
_HUB = re.compile(r"(?:hf:)?[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_BARE = re.compile(r"[A-Za-z][A-Za-z0-9]*(-\w+)+")
"""A model that no one owns: ``bert-base-uncased``."""
_MODELS = (
    *(".onnx", ".tflite", ".pt", ".pth", ".pt2", ".ptl", ".jit", ".ckpt", ".safetensors", ".keras", ".h5", ".hdf5"),
    *(".pb", ".mlir", ".mlirbc", ".bin"),
)
_LFS = b"version https://git-lfs.github.com/spec/"
_ZIP, _GZIP, _XZ, _BZIP2, _7Z, _RAR = (
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"\xfd7zXZ\0",
    b"BZh",
    b"7z\xbc\xaf'\x1c",
    b"Rar!\x1a\x07",
)
_PACKED = {_GZIP: "gunzip", _XZ: "unxz", _BZIP2: "bunzip2", _7Z: "7z x", _RAR: "unrar x"}
_ORT = b"ORTM"
"""Of a FlatBuffer's identifier, its bytes 4 to 8.  Source: ONNX Runtime, core/flatbuffers/schema/ort.fbs."""
_DELIVERED = tuple("*/" * depth + "manifest.json" for depth in range(5))
"""In the folder of an export, of one for several targets, and in a release: a model's name may have a slash."""
_RELEASE = "release.json"
_MOST_NAMED = 3
_START_BYTES = 512
_HEAVIEST_LISTING = 10_000


def elsewhere(source: str) -> str | None:
    """What to do with ``source``, which is not on this disk: an address, or the name of a model on a hub."""
    if _ADDRESS.fullmatch(source):
        return f"{source} is an address, and convertkit reads files; download it first, then export the file"
    owned = _HUB.fullmatch(source) and Path(source).suffix.lower() not in _MODELS and not Path(source).parent.exists()
    if owned or _BARE.fullmatch(source):
        name = source.removeprefix("hf:")
        return (
            f"{source} does not exist; if it names a model on a hub, convertkit downloads nothing\n"
            f"  try   downloading {name} and exporting its .onnx or .safetensors (with --model pkg.mod:factory)\n"
            "  try   pkg.mod:factory, with a function of yours that loads it and returns the module"
        )
    return None


def not_a_model(path: Path) -> str | None:
    """What a file is that is not read: left by a download, compressed, or ``.ort``; None for anything else."""
    if not path.is_file():
        return None
    start = _start(path)
    if start.startswith(_LFS):
        return f"{path} is a Git LFS pointer, not the model itself; in its repository run: git lfs pull"
    if re.match(rb"(\xef\xbb\xbf)?\s*(<!doctype html|<html)", start, re.IGNORECASE):
        return (
            f"{path} is a page of HTML, not a model: the address that it was downloaded from shows the file\n"
            "  try   the address of the download itself (on most sites with 'raw' or 'resolve' in it)"
        )
    if start[4:8] == _ORT:
        return (
            f"{path} is a .ort file, which ONNX Runtime has optimised; convertkit writes that and does not read it\n"
            "  try   the .onnx that it was made from"
        )
    command = next((command for mark, command in _PACKED.items() if start.startswith(mark)), None)
    if command is None:
        return None
    return archive_of(path) or f"{path} is compressed; unpack it first, then export the model: {command} {path}"


def archive_of(path: Path) -> str | None:
    """What a zip or tar archive holds, and how to unpack it; None for what is not one."""
    if not path.is_file():
        return None
    import tarfile

    if _start(path).startswith(_ZIP):
        return _told(path, "zip archive", _zipped(path), f"unzip {path}")
    return _told(path, "tar archive", _tarred(path), f"tar xf {path}") if tarfile.is_tarfile(path) else None


def deliveries_of(path: Path) -> str | None:
    """Which artifacts a folder holds that convertkit delivered: an export, one for several targets, or a release."""
    if not path.is_dir():
        return None
    manifests = sorted({made for pattern in _DELIVERED for made in path.glob(pattern)})
    found = [(made.parent, artifact) for made in manifests if (artifact := _artifact(made)) is not None]
    if not found:
        return None
    held = "one artifact" if len(found) == 1 else f"{len(found)} artifacts"
    release = (path / _RELEASE).is_file()
    ways = [f"its artifact {artifact}" for _, artifact in found[:_MOST_NAMED]]
    ways += [f"convertkit verify {path}, which checks them all"] if release else []
    several = "" if found[0][0] == path else " for several targets"
    kind = "a release" if release else f"what an export{several} delivered"
    return "\n  try   ".join([f"{path} is {kind}, not a model; it holds {held}", *ways])


def _artifact(manifest: Path) -> Path | None:
    """The model or package that an export's manifest lists; None where the manifest is somebody else's."""
    try:
        described = json.loads(manifest.read_text(encoding="utf-8"))
        return manifest.parent / described["artifact"]["path"] if "convertkit" in described else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _told(path: Path, kind: str, names: list[str], command: str) -> str:
    models = [name for name in names if PurePosixPath(name).suffix.lower() in _MODELS]
    models += [f"{PurePosixPath(name).parent}/" for name in names if PurePosixPath(name).name == "saved_model.pb"]
    found = f"with {', '.join(models[:3])} in it" if models else "in which no file has the name of a model"
    return f"{path} is a {kind} {found}; unpack it first, then export the model: {command}"


def _zipped(path: Path) -> list[str]:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()[:_HEAVIEST_LISTING]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []


def _tarred(path: Path) -> list[str]:
    import tarfile

    names = []
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                names.append(member.name)
                if len(names) >= _HEAVIEST_LISTING:
                    break
    except (tarfile.TarError, OSError, EOFError):
        return names
    return names


def _start(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_START_BYTES)
