"""How a worker's process begins: ``python -m convertkit.workers.serving [FRAMEWORK]``.

The framework is imported before anything of ours: it takes a second, and most of what we need it needs, too.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from contextlib import suppress


def main(framework: str = "") -> None:
    """Import ``framework``, then serve whatever the parent asks for until it closes the pipe."""
    begun = time.perf_counter()
    replies = os.dup(1)
    os.dup2(2, 1)  # what a framework prints must not reach the protocol
    gc.disable()  # what imports make stays: collecting among it takes a tenth of their time
    if framework:
        with suppress(ImportError):  # the service imports it as well, and the parent is told of that
            importlib.import_module(framework)
    framework_s = time.perf_counter() - begun
    from convertkit.on_demand import on_demand
    from convertkit.workers.answering import serve

    with on_demand():
        serve(replies, framework_s)
    gc.freeze()  # the process ends here: nothing is gained by looking among all of it once more


if __name__ == "__main__":
    main(*sys.argv[1:])
