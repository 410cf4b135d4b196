"""Long calibration that survives being killed: its state lies in a file that is replaced as a whole.

The file's name is a hash of the model that is measured, the tensors and the data, so another run can only
find a state that it would have reached itself.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.quantization.calibrate.histogram import Histogram, Statistics

EVERY = 128
"""Samples between two states; calibrations that are not twice as long leave none."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of one calibration, at ``path``."""

    path: Path

    def load(self, names: Sequence[str]) -> tuple[int, dict[str, Statistics]]:
        """Samples that are done, and statistics by name; zero samples where there is no usable state."""
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                done, numbers, counts = int(stored["done"]), stored["numbers"], stored["counts"]
            return done, dict(zip(names, map(from_numbers, numbers, counts), strict=True))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return 0, {name: Statistics() for name in names}

    def save(self, done: int, statistics: Mapping[str, Statistics]) -> None:
        """Replace the state.  Where the folder cannot be written a killed calibration starts again: no error."""
        buffer = io.BytesIO()
        every = statistics.values()
        numbers = [to_numbers(each) for each in every]
        np.savez(buffer, done=done, numbers=numbers, counts=np.stack([each.histogram.counts for each in every]))
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(buffer.getvalue())
            partial.replace(self.path)
        except OSError:
            self._remove(partial)

    def clear(self) -> None:
        """Remove the state: the calibration is complete."""
        self._remove(self.path)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return


def checkpoint(model: ir.Model, names: Sequence[str], data_sha256: str, part: str) -> Checkpoint:
    """The place for the state of measuring ``names`` of ``model`` on ``part`` of the data.

    It lies in ``$XDG_CACHE_HOME/convertkit/calibration``, else under ``~/.cache``.  How ranges are picked from the
    statistics does not matter for them, so the method is not part of the hash.
    """
    digest = hashlib.sha256(ir.to_proto(model).SerializeToString(deterministic=True))
    digest.update("\0".join((*names, data_sha256, part)).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Checkpoint(cache / "convertkit" / "calibration" / f"{digest.hexdigest()}.npz")


def to_numbers(statistics: Statistics) -> list[float]:
    """All of them but the counts."""
    histogram = statistics.histogram
    return [statistics.low, statistics.high, statistics.mean_low, statistics.mean_high,
            float(statistics.samples), float(histogram.exponent), float(histogram.zeros)]  # fmt: skip


def from_numbers(numbers: np.typing.NDArray[np.float64], counts: np.typing.NDArray[np.int64]) -> Statistics:
    """What :func:`to_numbers` and the counts were made of."""
    low, high, mean_low, mean_high, samples, exponent, zeros = (float(number) for number in numbers)
    histogram = Histogram(int(exponent), counts.copy(), int(zeros))
    return Statistics(low, high, mean_low, mean_high, int(samples), histogram)
