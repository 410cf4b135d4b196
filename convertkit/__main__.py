"""The ``convertkit`` command, also as ``python -m convertkit``."""

from __future__ import annotations

import gc

from convertkit.stopping import nothing_begun

_OBJECTS_PER_COLLECTION = 20_000


def main() -> None:
    """Run the command, and collect garbage more seldom than a host that stays.

    A small export is mostly imports, and what they make stays: collecting among it took a tenth of its time, and once
    more as much at its end, where the system takes everything back at once.
    """
    nothing_begun()
    from convertkit import cli
    from convertkit.guarding import guarded

    guarded(cli.tell_crash)
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    try:
        cli.main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
