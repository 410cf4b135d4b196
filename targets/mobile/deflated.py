"""A model that lies deflated in a package, which an app decodes into a file of its own when it first starts.

DEFLATE is what both systems decode without a library: ``java.util.zip.Inflater`` and Foundation's
``NSData.decompressed(using: .zlib)``, both without a header around it.  Source: RFC 1951.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

from convertkit.errors import SourceError

DEFLATED = ".deflate"
"""Behind the name of the model's file: build tools compress ``.gz`` and ``.zip`` in ways of their own."""
_BEST, _NO_HEADER = 9, -15


@dataclass(frozen=True, slots=True)
class Packed:
    """What the decoded file has to be: its size and its digest, in the generated code."""

    size: int
    sha256: str

    @classmethod
    def of(cls, model: bytes) -> Packed:
        """Of the model as the runtime reads it."""
        return cls(len(model), hashlib.sha256(model).hexdigest())


def deflated(model: bytes) -> bytes:
    """The model as it lies in the package."""
    packer = zlib.compressobj(_BEST, zlib.DEFLATED, _NO_HEADER)
    return packer.compress(model) + packer.flush()


def inflated(data: bytes, name: str) -> bytes:
    """The model again; ``SourceError`` for what is not deflated, cut off, or followed by something."""
    unpacker = zlib.decompressobj(_NO_HEADER)
    try:
        model = unpacker.decompress(data)
    except zlib.error as error:
        raise SourceError(f"{name} is not deflated: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise SourceError(f"{name} is {'followed by other bytes' if unpacker.eof else 'cut off'}")
    return model
