"""An exception that nobody foresaw: in whose code, and at which stage, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import walk_tb

from convertkit.errors import ConvertKitError, full_disk

_MARK = "convertkit: "
"""Begins the notes of an exception that are ours."""


@contextmanager
def blamed(doing: str, *plugins: object) -> Iterator[None]:
    """Have an exception that is not told on purpose say what was being done, and whose defect it is.

    Of the ``plugins`` that take part, the one whose code was entered last is at fault; else the first one.
    """
    try:
        yield
    except (ConvertKitError, MemoryError):
        raise
    except Exception as error:
        if full_disk(error) is None and not _notes(error):
            error.add_note(f"{_MARK}in {doing}")
            error.add_note(f"{_MARK}it is a defect of {_at_fault(error, plugins)}, not of the model")
        raise


def told(error: BaseException, hint: str = "") -> str:
    """One sentence on an exception that nobody foresaw; ``hint`` is how to see more."""
    lines = str(error).strip().splitlines()
    where, *fault = _notes(error) or [""]
    said = f"internal error{where and ' '}{where}, {type(error).__name__}: {lines[0] if lines else ''}"
    return "\n  ".join((f"{said}{hint}", *fault))


def _notes(error: BaseException) -> list[str]:
    return [each.removeprefix(_MARK) for each in getattr(error, "__notes__", ()) if each.startswith(_MARK)]


def _at_fault(error: Exception, plugins: Sequence[object]) -> str:
    packages = [_code_of(each) for each in plugins]
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__)]
    entered = [each for module in modules for each in packages if f"{module}.".startswith(f"{each}.")]
    return [packages[0], *entered][-1]


def _code_of(plugin: object) -> str:
    """The package of a plugin: the top-level one, of our own the one below ``convertkit.targets`` and the like."""
    parts = type(plugin).__module__.split(".")
    return ".".join(parts[: 3 if parts[0] == "convertkit" else 1])
