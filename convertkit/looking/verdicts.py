"""What ``convertkit check`` says: for each target whether a model converts, or what is in the way."""

from __future__ import annotations

from dataclasses import dataclass

from convertkit.errors import ConvertKitError, Unsupported
from convertkit.looking.tables import Shown, Table

_WAY_OUT = "  try   "
_FROM = "  from  "


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model converts for one target.

    Where it does not, ``kind`` is the class of the error, ``exit_code`` what ``export`` ends with, ``node`` what is in
    the way (empty where it is not a node), ``reason`` why, ``location`` the line of the user's own source, ``ways_out``
    what to do.  ``notes`` tell which dimensions had to be fixed.
    """

    target: str
    converts: bool
    kind: str = ""
    exit_code: int = 0
    node: str = ""
    reason: str = ""
    location: str = ""
    ways_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Checked(Shown):
    """The verdict for each target, and how long that took in all, in seconds."""

    source: str
    precision: str
    verdicts: tuple[Verdict, ...]
    seconds: float
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether it converts for every target."""
        return all(each.converts for each in self.verdicts)

    @property
    def failure(self) -> ConvertKitError | None:
        """What the command ends with, with the exit code that all failures have, else 1; None where it converts."""
        codes = {each.exit_code for each in self.verdicts if not each.converts}
        if not codes:
            return None
        failed = ConvertKitError(self.headline)
        failed.exit_code = codes.pop() if len(codes) == 1 else 1
        return failed

    @property
    def headline(self) -> str:
        """Where it goes, and where not."""
        there = [each.target for each in self.verdicts if each.converts]
        not_there = [each.target for each in self.verdicts if not each.converts]
        told = [f"converts for {', '.join(there)}"] if there else []
        told += [f"not for {', '.join(not_there)}"] if not_there else []
        return f"{self.source} ({self.precision}): {'; '.join(told)}"

    def tables(self) -> tuple[Table, ...]:
        """A row for each target, and the ways out."""
        rows = [(each.target, "yes" if each.converts else "NO", each.node, each.reason) for each in self.verdicts]
        ways = [(each.target, way) for each in self.verdicts for way in _without_repeats(each)]
        return (
            Table("", ("target", "converts", "node", "reason"), tuple(rows)),
            Table("ways out", ("", ""), tuple(ways)),
        )

    def remarks(self) -> tuple[str, ...]:
        """What an export of it says besides, and what this does not tell."""
        fixed = (f"{each.target}: {note}" for each in self.verdicts for note in each.notes)
        return (*self.notes, *fixed, "converted, not run: export verifies what it computes")


def _without_repeats(verdict: Verdict) -> tuple[str, ...]:
    where = (f"look at {verdict.location}",) if verdict.location else ()
    return tuple(dict.fromkeys((*where, *verdict.ways_out)))


def refused(target: str, refusal: ConvertKitError) -> Verdict:
    """The refusal of an export, taken apart."""
    lines = str(refusal).splitlines() or [type(refusal).__name__]
    ways = tuple(line.removeprefix(_WAY_OUT) for line in lines if line.startswith(_WAY_OUT))
    location = next((line.removeprefix(_FROM) for line in lines if line.startswith(_FROM)), "")
    is_known = isinstance(refusal, Unsupported) and bool(refusal.subject)
    node, reason = (
        (refusal.subject, refusal.reason) if isinstance(refusal, Unsupported) and is_known else ("", lines[0])
    )
    return Verdict(target, False, type(refusal).__name__, refusal.exit_code, node, reason, location, ways)
