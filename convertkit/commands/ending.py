"""How a command ended, and what is printed then: one object with ``--json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from convertkit.event_log import EventLog
    from convertkit.job import Outcome
    from convertkit.release.result import Release


@dataclass(slots=True)
class Session:
    """What a command has come to so far: ``convertkit.cli.main`` tells it, however it ends."""

    command: str = "export"
    as_json: bool = False
    quiet: bool = False
    began: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    """What became of each target of an export."""
    log: EventLog | None = None
    """Where the command tells its progress, with ``--log-json``."""
    found: Mapping[str, Any] | None = None
    """What another command found: with ``--json`` it stands in the one object, however the command ends."""
    release: Release | None = None
    """What ``run`` has put in its place."""

    def released(self, release: Release) -> None:
        """Keep what was put in its place, so that a signal that comes behind it finds it told."""
        self.release, self.found = release, {"release": release.as_json()}

    def written(self) -> str:
        """What lies in its place by now, for a command that was stopped."""
        released = [] if self.release is None else [self.release]
        done = [str(each.result.path) for each in self.outcomes if each.result is not None]
        done += [str(each.path) for each in released if each.passed]
        left = [str(each.left) for each in self.outcomes if each.left is not None]
        left += [str(each.path) for each in released if not each.passed]
        if done:
            return f"delivered before: {', '.join(done)}"
        return f"nothing was delivered; what failed before lies in {', '.join(left)}" if left else "nothing was written"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a command ended before it was done: its exit code, the kind of error, and what it says."""

    code: int
    kind: str
    message: str


def print_results(session: Session, ending: Ending | None) -> None:
    """What was delivered, and where the reports of what failed lie; one object with ``--json``."""
    delivered = [each.result for each in session.outcomes if each.result is not None]
    if session.as_json and (session.began or session.found is not None or ending is not None):
        _print_summary(session, ending)
    elif delivered:
        from convertkit import formatting

        formatting.print_results(delivered, quiet=session.quiet)
    reports = [str(each.left / "report.html") for each in session.outcomes if each.left is not None]
    if session.log is not None:
        _log_end(session.log, ending, reports)
        return
    for report in reports:
        click.echo(f"  see   {report}", err=True)


def _log_end(log: EventLog, ending: Ending | None, reports: list[str]) -> None:
    from convertkit.summary import described

    code = 0 if ending is None else ending.code
    error = None if ending is None else described(ending.kind, ending.message)
    log.tell("end", exit_code=code, passed=code == 0, error=error, reports=reports)


def _print_summary(session: Session, ending: Ending | None) -> None:
    from convertkit.report.jsonable import dumps
    from convertkit.summary import described, summary

    code = 0 if ending is None else ending.code
    error = None if ending is None else described(ending.kind, ending.message)
    told = summary(session.command, code, error, session.outcomes) | dict(session.found or {})
    click.echo(dumps(told), nl=False)


def quiet_logs(verbose: bool) -> None:
    """What libraries log and warn about is ours to judge, not the user's to read, except with ``--verbose``."""
    import logging
    import warnings

    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL)
    if not verbose:
        warnings.simplefilter("ignore")
