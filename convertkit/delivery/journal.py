"""Moving entries into a folder that stays, so that a killed move can be undone by the next run.

The journal names what moves in and what moves out.  As long as one new entry is not in its place, the move is not
done, and :func:`undone` puts everything back; the manifest goes out first and comes in last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from convertkit.delivery.disk import flush
from convertkit.delivery.ownership import MANIFEST, MARK, check_ours, strangers

_JOURNAL = "delivering.json"
_OLD = "old"


@dataclass(frozen=True, slots=True)
class Move:
    """``finished`` is a folder below the workspace; ``new`` are its entries, ``old`` those that they replace."""

    folder: str
    finished: str
    new: tuple[str, ...]
    old: tuple[str, ...]


def move_in(finished: Path, folder: Path, workspace: Path) -> None:
    """Replace what ``folder`` holds, but for workspaces, by the entries of ``finished``; all of it or nothing.

    Raises ``DeliveryError`` where what it holds is not all ours.
    """
    old = [entry.name for entry in folder.iterdir() if not entry.name.startswith(MARK)]
    new = [entry.name for entry in finished.iterdir()]
    move = Move(
        str(folder), str(finished.relative_to(workspace)), tuple(_manifest_last(new)), tuple(_manifest_last(old)[::-1])
    )
    (workspace / _OLD).mkdir()
    _write(workspace / _JOURNAL, move)
    try:
        for name in move.old:
            (folder / name).rename(workspace / _OLD / name)
        check_ours(workspace / _OLD, folder)  # somebody may have put a file there meanwhile
        for name in move.new:
            (finished / name).rename(folder / name)
    except BaseException:
        undo(workspace)
        raise
    (workspace / _JOURNAL).unlink()
    shutil.rmtree(workspace / _OLD, ignore_errors=True)


def undo(workspace: Path) -> bool:
    """Put back what a move that did not come to its end has moved; whether the workspace may go now.

    A journal may have come with an archive, so it is not believed: what it names must lie in its own folder, what it
    would take out of there must be an export's, and nothing is written over.
    """
    if not (workspace / _JOURNAL).is_file():
        return True
    move = _read(workspace / _JOURNAL)
    if move is None or not _is_ours(move, workspace):
        return False
    folder, finished = Path(move.folder), workspace / move.finished
    if not any((finished / name).exists() for name in move.new):
        return True  # all is in place
    taken = [name for name in reversed(move.new) if not (finished / name).exists() and (folder / name).exists()]
    for name in taken:
        (folder / name).rename(finished / name)
    if strangers(finished):
        for name in taken:
            (finished / name).rename(folder / name)
        return False
    for name in reversed(move.old):
        if (workspace / _OLD / name).exists() and not (folder / name).exists():
            (workspace / _OLD / name).rename(folder / name)
    if any((workspace / _OLD).iterdir()):
        return False
    (workspace / _OLD).rmdir()
    (workspace / _JOURNAL).unlink()
    return True


def _is_ours(move: Move, workspace: Path) -> bool:
    """Whether all that the journal names is where :func:`move_in` has it."""
    home, folder = workspace.parent.resolve(), Path(move.folder)
    return (
        all(Path(name).name == name for name in (*move.new, *move.old))
        and folder.resolve() == folder
        and home in (folder, *folder.parents)
        and workspace.resolve() in (workspace / move.finished).resolve().parents
        and (workspace / _OLD).is_dir()
        and not (workspace / _OLD).is_symlink()
    )


def _manifest_last(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name == MANIFEST, name))


def _write(path: Path, move: Move) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(move)), encoding="utf-8")
    flush(draft)
    draft.rename(path)


def _read(path: Path) -> Move | None:
    """What a journal says; None where it is not one of ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Move(str(found["folder"]), str(found["finished"]), tuple(found["new"]), tuple(found["old"]))
    except (ValueError, KeyError, TypeError):
        return None
