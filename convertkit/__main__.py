"""The ``convertkit`` command, also as ``python -m convertkit``."""

from __future__ import annotations

from convertkit.cli import main

if __name__ == "__main__":
    main()
