"""``--tensorrt-rtx-sm``: an engine for TensorRT-RTX, built at the export, which needs no GPU, and executed nowhere.

With a profile the builder numbers inner values (``__mye1518``) in another order at each build, and more may differ: the
bytes of this one file are not those of the next build.  With fixed sizes they were for every model that was tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from convertkit.artifact import TensorSpec
from convertkit.targets.tensorrt.shapes import Range
from convertkit.workers.process import Worker

FILE = "model_rtx.engine"
SERVICE = "convertkit.targets.tensorrt.rtx_service:RtxService"
KNOWN = (75, 80, 86, 89, 120, 121)
"""Compute capabilities, times ten, that the builder of TensorRT-RTX 1.7 compiles for."""
_TURING = 75


@dataclass(frozen=True, slots=True)
class Architectures:
    """Compute capabilities, times ten, rising."""

    sms: tuple[int, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.sms))


def architectures(text: str) -> Architectures:
    """``80,89,120``; ``ValueError`` for anything else, and for what no one engine is built for."""
    words = text.replace(" ", "").split(",")
    known = ", ".join(map(str, KNOWN))
    if not all(re.fullmatch(r"\d+", word) and int(word) in KNOWN for word in words):
        raise ValueError(f"expected compute capabilities of TensorRT-RTX, several with commas between them: {known}")
    sms = tuple(sorted(map(int, words)))
    if len(set(sms)) < len(sms):
        raise ValueError("a compute capability is given twice")
    if _TURING in sms and len(sms) > 1:
        raise ValueError(f"{_TURING} (Turing) takes an engine of its own")
    return Architectures(sms)


@dataclass(frozen=True, slots=True)
class Engine:
    """A built engine; ``sms`` are the compute capabilities, times ten, that it is for."""

    file: str
    version: str
    sms: tuple[int, ...]
    size_bytes: int
    sha256: str

    def described(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "file": self.file,
            "tensorrt_rtx": self.version,
            "compute_capabilities": [f"{sm // 10}.{sm % 10}" for sm in self.sms],
            "bytes": self.size_bytes,
            "sha256": self.sha256,
            "built": True,
            "executed": False,
        }


def runtime_version() -> str:
    """Of TensorRT-RTX, as it is installed."""
    return version("tensorrt-rtx")


def build(
    model: Path,
    inputs: Sequence[TensorSpec],
    ranges: Sequence[Range],
    wanted: Architectures,
    timeout_s: float | None = None,
    *,
    sparse: bool = False,
) -> Engine:
    """Build ``FILE`` beside ``model``; ``Unsupported`` names the node and the reason that TensorRT-RTX gives."""
    engine = model.with_name(FILE)
    params = {
        "model": str(model),
        "engine": str(engine),
        "sms": list(wanted.sms),
        "shapes": {name: [list(shape) for shape in shapes] for name, shapes in _shapes(inputs, ranges).items()},
        "sparse": sparse,
    }
    with Worker(SERVICE, timeout_s=timeout_s) as worker:
        told = worker.call("build", params).value
    return Engine(FILE, runtime_version(), wanted.sms, engine.stat().st_size, str(told["sha256"]))


def _shapes(inputs: Sequence[TensorSpec], ranges: Sequence[Range]) -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """Least, usual and greatest shape of each input with a dynamic dimension; all of them have a range."""
    sizes = {each.name: each.sizes for each in ranges}
    return {
        spec.name: tuple(tuple(sizes[d][at] if isinstance(d, str) else d for d in spec.shape) for at in range(3))
        for spec in inputs
        if any(isinstance(dim, str) for dim in spec.shape)
    }
