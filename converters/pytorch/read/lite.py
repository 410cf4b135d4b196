"""What PyTorch Mobile left in an archive: bytecode for its lite interpreter, and weights packed for one processor.

A ``.ptl`` file is TorchScript with bytecode beside the code, and is read as TorchScript.  After ``optimize_for_mobile``
its weights are objects that only a PyTorch built for that backend can unpack.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping

_PACKED = re.compile(rb"\bops\.((?:prepacked|vulkan_prepack|metal_prepack|vulkan|metal)\.\w+)")
_MAX_CODE_BYTES = 16 << 20


def packed_operators(archive: zipfile.ZipFile, inside: Mapping[str, str]) -> tuple[str, ...]:
    """The operators on packed weights in the code of an archive; ``inside`` has its entries below its folder."""
    found: set[str] = set()
    for name, entry in inside.items():
        if name.startswith("code/") and name.endswith(".py") and archive.getinfo(entry).file_size <= _MAX_CODE_BYTES:
            found.update(match.decode().replace(".", "::") for match in _PACKED.findall(archive.read(entry)))
    return tuple(sorted(found))


def instead_of(packed: tuple[str, ...]) -> tuple[str, str]:
    """What a file with packed operators is, and the way out."""
    more = f" and {len(packed) - 1} more" if len(packed) > 1 else ""
    return (
        f"a model that optimize_for_mobile has packed for one kind of processor ({packed[0]}{more}), which no other "
        "program unpacks",
        "the module, or the TorchScript, from before optimize_for_mobile: docs/how-to/migrate-from-pytorch-mobile.md",
    )
