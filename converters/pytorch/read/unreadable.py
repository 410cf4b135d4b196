"""Files of PyTorch that cannot be read as they are: what each is instead, and the way out.

Formats that torch has given up, archives around a model, and forms that carry more than one file of weights.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path

_SUFFIXES = (".pt", ".pth", ".pt2", ".ptl", ".ckpt", ".safetensors")
_COMPRESSED: dict[bytes, Callable[[Path], io.BufferedIOBase]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
_MAX_MEMBERS = 10_000
_NAMED = 3
_UNPACK = "unpacking it, and exporting what is inside"


def archive(inside: Collection[str]) -> tuple[str, str] | None:
    """What a zip is, by the names of its entries below its folder."""
    if "model.json" in inside and any(name.startswith("code/") for name in inside):
        return (
            "TorchScript of torch before 1.3, which today's torch no longer reads",
            "loading it with torch 1.7, which still does, and saving it again",
        )
    if ".data/extern_modules" in inside:
        return (
            "a torch.package, which runs Python modules that it carries",
            "torch.package.PackageImporter and torch.jit.script of its module, if you know who made the file",
        )
    return None


def around(names: Collection[str]) -> tuple[str, str] | None:
    """Whether there are models among the entries of an archive."""
    models = [name for name in names if name.lower().endswith(_SUFFIXES)]
    more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
    return (f"an archive around {', '.join(models[:_NAMED])}{more}", _UNPACK) if models else None


def folder(path: Path) -> tuple[str, str] | None:
    """Whether a folder is what ``torch.distributed.checkpoint`` writes."""
    if (path / ".metadata").is_file() and any(path.glob("*.distcp")):
        return (
            "a folder of torch.distributed.checkpoint",
            f"torch.distributed.checkpoint.format_utils.dcp_to_torch_save({path.name!r}, 'weights.pt')",
        )
    return None


def wrapped(path: Path, is_model: Callable[[bytes], bool]) -> tuple[str, str] | None:
    """A model inside a tar or a compressed file, and the tar that torch itself wrote before 0.1.10."""
    with path.open("rb") as stream:
        head = stream.read(512)
    try:
        if head[257:262] == b"ustar":
            return _tar(path)
        opened = next((each for magic, each in _COMPRESSED.items() if head.startswith(magic)), None)
        if opened is None:
            return None
        with opened(path) as unpacked:
            inner = unpacked.read(512)
    except (EOFError, tarfile.TarError, zlib.error, lzma.LZMAError):
        return None
    return ("a compressed file around a model", _UNPACK) if is_model(inner) or inner[257:262] == b"ustar" else None


def _tar(path: Path) -> tuple[str, str] | None:
    with tarfile.open(path) as members:
        names = [entry.name for entry, _ in zip(members, range(_MAX_MEMBERS), strict=False)]
    if {"sys_info", "pickle", "storages"} <= set(names):
        return (
            "a tar of torch before 0.1.10, which is read by unpickling alone",
            "torch.save(torch.load(path, weights_only=False), 'weights.pt'), if you know who made the file",
        )
    return around(names)


_FITTED = {
    "sklearn": ("scikit-learn", "skl2onnx.to_onnx(model, x[:1])"),
    "xgboost": ("XGBoost", "onnxmltools.convert_xgboost"),
    "lightgbm": ("LightGBM", "onnxmltools.convert_lightgbm"),
    "catboost": ("CatBoost", 'model.save_model("model.onnx", format="onnx")'),
}
"""Libraries whose fitted models lie in pickles: what each is called, and how it writes ONNX."""


def fitted(needed: Collection[str]) -> tuple[str, str] | None:
    """What a pickle that needs these names holds, and the way out; None where no such library made it."""
    named = {name.partition(".")[0] for name in needed}
    for library, (title, way) in _FITTED.items():
        if library in named and "torch" not in named:
            return f"a pickle of {title}, which convertkit does not read", f"the .onnx that its exporter writes: {way}"
    return None
