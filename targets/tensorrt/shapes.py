"""``--tensorrt-profile``: between which sizes of its dynamic dimensions an engine is built, as trtexec is told it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from convertkit.artifact import TensorSpec
from convertkit.errors import UsageError
from convertkit.findings.snippets_onnx import trtexec_command
from convertkit.target_options import flag

_LARGEST = 2**31 - 1
"""TensorRT's dimensions are 64-bit, its kernels' are not.  Source: NVIDIA's "Working with Dynamic Shapes"."""
_SIZES = re.compile(r"(\d+),(\d+),(\d+)")
_FLAG = flag("tensorrt", "profile")


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes of one named dimension: the engine takes ``least`` to ``most`` and is tuned for ``usual``."""

    name: str
    least: int
    usual: int
    most: int

    def __str__(self) -> str:
        return f"{self.name}={self.least},{self.usual},{self.most}"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """In the order of trtexec's ``--minShapes``, ``--optShapes`` and ``--maxShapes``."""
        return self.least, self.usual, self.most


def size_range(text: str) -> Range:
    """``N=1,8,32``; ``ValueError`` for anything else."""
    name, _, sizes = text.rpartition("=")
    match = _SIZES.fullmatch(sizes.replace(" ", ""))
    if not name.strip() or match is None:
        raise ValueError("expected NAME=MIN,OPT,MAX, for example N=1,8,32")
    least, usual, most = map(int, match.groups())
    if not 1 <= least <= usual <= most <= _LARGEST:
        raise ValueError(f"expected sizes from 1 to {_LARGEST} with MIN <= OPT <= MAX")
    return Range(name.strip(), least, usual, most)


def check_names(ranges: Sequence[Range]) -> None:
    """Raise ``UsageError`` where two ranges are for one dimension."""
    names = [each.name for each in ranges]
    if double := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise UsageError(f"{_FLAG} {double} is given twice")


def check_sizes(inputs: Sequence[TensorSpec], ranges: Sequence[Range]) -> None:
    """Raise ``UsageError`` for a range of what is not a dynamic dimension of an input, and for one that has none.

    trtexec would take 1 for the size of such a dimension, without a word.
    """
    given = {each.name for each in ranges}
    dynamic = list(dict.fromkeys(dim for spec in inputs for dim in spec.shape if isinstance(dim, str)))
    if unknown := next((each.name for each in ranges if each.name not in dynamic), None):
        known = f"dynamic are {', '.join(dynamic)}" if dynamic else "no dimension is dynamic, every size is fixed"
        raise UsageError(f"{_FLAG} {unknown}: the inputs have no dynamic dimension of that name; {known}")
    if missing := next((name for name in dynamic if name not in given), None):
        what = (
            f"{_FLAG} leaves out {missing}, which is dynamic, too" if given else f"an engine needs sizes for {missing}"
        )
        raise UsageError(f"{what}\n  try   {_FLAG} {missing}=MIN,OPT,MAX, or --static {missing}=SIZE")


def command(
    file: str,
    inputs: Sequence[TensorSpec],
    ranges: Sequence[Range],
    *,
    sparse: bool = False,
    typed: Sequence[str] = ("--stronglyTyped",),
) -> str:
    """The line that builds an engine from ``file`` for these sizes, in several lines of a shell.

    ``sparse`` lets it use kernels for 2:4 weights, ``typed`` tells it the types.  Raises ``UsageError`` as
    :func:`check_sizes` does.
    """
    check_sizes(inputs, ranges)
    sizes = {each.name: each.sizes for each in ranges}
    shapes = {spec.name: spec.shape for spec in inputs if any(isinstance(dim, str) for dim in spec.shape)}
    return trtexec_command(file, shapes, sizes, ["--sparsity=enable"] if sparse else [], typed)
