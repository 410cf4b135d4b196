"""Where an output folder really is, and whether it can be replaced as a whole."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from convertkit.errors import DeliveryError

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Place:
    """An output folder: ``folder`` as the user wrote it, ``real`` with links followed.

    ``inside`` says that entries are moved into the folder, which exists, because it cannot be replaced itself: it is a
    mount point or the current folder, or nothing may be made beside it.
    """

    folder: Path
    real: Path
    inside: bool

    @property
    def beside(self) -> Path:
        """The folder in which a workspace on the same file system can be made."""
        return self.real if self.inside else self.real.parent


def place_of(folder: Path) -> Place:
    """Raises ``DeliveryError`` for what is not a folder, or a link that leads nowhere."""
    if folder.is_symlink() and not folder.exists():
        raise DeliveryError(f"{folder} is a link to {os.readlink(folder)}, which does not exist")
    if folder.exists() and not folder.is_dir():
        raise DeliveryError(f"{folder} exists and is not a folder")
    real = folder.resolve()
    return Place(folder, real, real.is_dir() and _stays(real))


def _stays(real: Path) -> bool:
    """Whether an existing folder cannot be replaced by a rename."""
    return (
        os.path.ismount(real)
        or str(real) in _mount_points()
        or real == Path.cwd().resolve()
        or not os.access(real.parent, os.W_OK | os.X_OK)
    )


def _mount_points(mounts: Path = _MOUNTS) -> frozenset[str]:
    r"""Where something is mounted, folders of the same disk too, which ``os.path.ismount`` takes for plain ones.

    Source: proc(5), ``/proc/pid/mountinfo``: the fifth field, with spaces as ``\040``.
    """
    if not mounts.is_file():
        return frozenset()
    fields = (line.split()[4] for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines())
    return frozenset(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field) for field in fields)
