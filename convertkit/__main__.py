"""``python -m convertkit``."""

from convertkit.cli import main

if __name__ == "__main__":
    main()
