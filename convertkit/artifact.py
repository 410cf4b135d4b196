"""Values that flow between stages: a model file, and what goes into and comes out of it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:  # NumPy takes a tenth of a second to import, which a source's worker need not wait for
    Array = Any
Dim = int | str
"""A dimension: a size in elements, or the name of one that is dynamic."""

STATE_PREFIX = "state."
NEXT_STATE_PREFIX = "next_state."
STATE_FILE = "initial_state.npz"
PROCESSED = "+processing"
"""Ends the format of a source that is run with its pre- or post-processing around it, which its file does not hold."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """Per-tensor affine parameters of an integer interface: ``real = (integer - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of an artifact, as the artifact itself has it.

    ``shape`` is in the artifact's own layout.  ``perm`` says how that layout comes from the
    source's (``artifact = source.transpose(perm)``; empty where they are the same), and
    ``quantization`` how an integer interface stands for the source's real numbers.  Feeds and
    outputs always speak the source's layout and dtype: :meth:`encode` and :meth:`decode` translate.
    ``dtype`` is a NumPy name or one of ``bfloat16``, ``string``.  ``value_range`` is the half-open
    interval in which generated feeds must lie.  ``lsb`` is the step between neighbouring values of
    an output that a quantized artifact computes, whatever its interface; None where there is none.
    ``ranked`` marks an output behind a choice of best candidates, whose order near ties is rounding's, ``clamped`` one
    that ends in Clip, Relu, Min or Max, so that its limits are exact, ``discrete`` floats that stand for choices (of
    OneHot, Sign, a Cast of integers) and ``fixed`` one that no input's values reach.  ``rising`` marks an input whose
    values begin at 0 and do not fall, such as places at which something begins.  ``by_example`` says that
    ``value_range`` is that of an example: the model may take others.  ``classes`` is how many places the
    integers of an output choose among, behind ArgMax or TopK; None for any other.  ``kept`` marks state that the
    artifact holds between calls by itself: an app neither gives nor gets it.  ``labels`` are the words that a
    classifier of text gives: an artifact of numbers gives their places in this list.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    perm: tuple[int, ...] = ()
    quantization: Quantization | None = None
    value_range: tuple[float, float] | None = None
    lsb: float | None = None
    ranked: bool = False
    clamped: bool = False
    discrete: bool = False
    fixed: bool = False
    rising: bool = False
    by_example: bool = False
    classes: int | None = None
    kept: bool = False
    labels: tuple[str, ...] = ()

    @property
    def source_shape(self) -> tuple[Dim, ...]:
        """The shape in the source's layout."""
        if not self.perm:
            return self.shape
        shape: list[Dim] = list(self.shape)
        for place, axis in enumerate(self.perm):
            shape[axis] = self.shape[place]
        return tuple(shape)

    @property
    def is_state(self) -> bool:
        """Whether this carries state from call to call (``state.NAME``, ``next_state.NAME``)."""
        return self.name.startswith((STATE_PREFIX, NEXT_STATE_PREFIX))

    def numbered(self, value: Array) -> Array:
        """Words as their places in ``labels``; anything else as it is."""
        import numpy as np

        if not self.labels or np.issubdtype(value.dtype, np.integer):
            return value
        places = {word: place for place, word in enumerate(self.labels)}
        return np.array([places[word] for word in value.reshape(-1).tolist()], np.int64).reshape(value.shape)

    def encode(self, value: Array) -> Array:
        """Translate a source-side array into what the artifact's runtime expects."""
        import numpy as np

        if self.perm:
            value = value.transpose(self.perm)
        if self.quantization is not None and np.issubdtype(value.dtype, np.floating):
            kind = np.iinfo(self.dtype)
            steps = np.rint(value / self.quantization.scale) + self.quantization.zero_point
            value = np.clip(steps, kind.min, kind.max).astype(self.dtype)
        return np.asarray(value, order="C")  # ascontiguousarray would give a scalar an axis

    def decode(self, value: Array) -> Array:
        """Translate what the artifact's runtime returned into the source's layout and dtype."""
        import numpy as np

        if self.quantization is not None:
            steps = value.astype(np.float32) - np.float32(self.quantization.zero_point)
            value = steps * np.float32(self.quantization.scale)
        if self.labels and np.issubdtype(value.dtype, np.integer):
            count = len(self.labels)
            known = np.where((value >= 0) & (value < count), value, count)
            value = np.array([*self.labels, f"none of the {count} labels"], object)[known]
        return value.transpose(np.argsort(self.perm)) if self.perm else value


@dataclass(frozen=True, slots=True)
class Artifact:
    """A model file or folder in a known format; a value, never changed in place.

    ``format`` is a word such as ``onnx``, ``tflite``, ``torchscript``.  ``made_by`` names the stage
    and its version; it is empty for a source.  ``initial_state`` is an ``.npz`` with the start value
    of every ``state.*`` input, where there are any.
    """

    path: Path
    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sha256: str
    made_by: str = ""
    initial_state: Path | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes on disk: of all files where the artifact is a folder, and of weights that we keep beside it."""
        return sum(file.stat().st_size for file in (*files_of(self.path), *_weights_beside(self.path)))

    def input(self, name: str) -> TensorSpec:
        """The input called ``name``; ``KeyError`` where there is none."""
        return {spec.name: spec for spec in self.inputs}[name]


def files_of(path: Path) -> tuple[Path, ...]:
    """The file itself, or every file below a folder, in a fixed order."""
    if path.is_dir():
        return tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    return (path,)


def _weights_beside(path: Path) -> tuple[Path, ...]:
    """The ``.bin`` of an OpenVINO ``.xml``, an ncnn ``.param`` or an ONNX file for Qualcomm, a large ONNX's data."""
    of_onnx = (path.with_name(f"{path.stem}_qnn.bin"), path.with_name(f"{path.name}.data"))
    weights = (path.with_suffix(".bin"),)
    beside = {".xml": weights, ".param": weights, ".onnx": of_onnx}
    return tuple(weights for weights in beside.get(path.suffix, ()) if weights.is_file())


_AT_ONCE_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Hex digest of a file, or of a folder's relative names and contents in a fixed order."""
    if not path.is_dir():
        with open(path, "rb", buffering=0) as stream:
            if os.fstat(stream.fileno()).st_size <= _AT_ONCE_BYTES:
                return hashlib.sha256(stream.readall()).hexdigest()
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file in files_of(path):
        digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        digest.update(bytes.fromhex(sha256_of(file)))
    return digest.hexdigest()


SMALL_BYTES = 128 << 20


def is_small(artifact: Artifact) -> bool:
    """Whether two things may be done with an artifact at a time, judged by all its files (128 MiB)."""
    return bytes_beside(artifact) <= SMALL_BYTES


def bytes_beside(artifact: Artifact) -> int:
    """Bytes of the model and, where a stage has made it, of all files beside it, such as its weights."""
    files = files_of(artifact.path.parent if artifact.made_by else artifact.path)
    return sum(file.stat().st_size for file in files)
