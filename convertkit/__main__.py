"""The ``convertkit`` command, also as ``python -m convertkit``."""

from __future__ import annotations

import sys

from convertkit.workers import launching


def main() -> None:
    """Start what the command will wait for longest, then read its flags."""
    launching.foresee(sys.argv[1:])
    try:
        from convertkit import cli

        cli.main()
    finally:
        launching.discard()


if __name__ == "__main__":
    main()
