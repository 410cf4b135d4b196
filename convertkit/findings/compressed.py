"""What zeros in the weights are worth: where a package or a download compresses files, and as sparse tensors."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

from convertkit.artifact import Artifact, files_of
from convertkit.findings.values import Sizes
from convertkit.operators import SparseTarget
from convertkit.stage import Target

_SPARSE = 0.3
"""The share of zeros from which on a model counts as pruned, by whomever."""
_LARGEST = 1 << 28
"""Bytes up to which files are deflated, which takes a second for each 30 MB."""
_LEVEL = 6
"""What zip archives, and APKs among them, usually have."""
_AT_ONCE = 1 << 20


def sizes(target: Target, artifact: Artifact, pruned: bool) -> tuple[Sizes | None, tuple[str, ...]]:
    """Of a model whose weights were set to zero one by one, here or before, and a note on it; else None."""
    files = files_of(artifact.path.parent)
    dense = sum(file.stat().st_size for file in files)
    if dense > _LARGEST:
        return None, ()
    found = target.zeros(artifact) if isinstance(target, SparseTarget) else None
    share = found.count / found.weights if found is not None and found.weights else 0.0
    if not pruned and share < _SPARSE:
        return None, ()
    deflated = deflated_bytes(files)
    told = f"of {dense:,} bytes {deflated:,} are left where a package or a download deflates them"
    if found is None or not found.weights:
        return Sizes(dense, deflated), (told,)
    sparse = dense - artifact.path.stat().st_size + found.sparse_bytes
    told += f", {sparse:,} in sparse tensors, as {share:.1%} of the weights are zero; {found.speed}"
    return Sizes(dense, deflated, sparse, share), (told,)


def deflated_bytes(files: Iterable[Path]) -> int:
    """Of all files together, each deflated on its own as in an archive."""
    return sum(map(_deflated, files))


def _deflated(file: Path) -> int:
    packer, count = zlib.compressobj(_LEVEL), 0
    with file.open("rb") as stream:
        while content := stream.read(_AT_ONCE):
            count += len(packer.compress(content))
    return count + len(packer.flush())
