"""The end of a process that was told to stop while a thread of it is in a call that takes minutes."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from contextlib import suppress


def leave(code: int) -> None:
    """End this process with ``code`` now, where a normal end would wait for a thread; else do nothing.

    Temporary folders go as they would at a normal end; worker processes end with this one.
    """
    if all(each.daemon or each is threading.main_thread() for each in threading.enumerate()):
        return
    for each in gc.get_objects():
        if type(each) is tempfile.TemporaryDirectory:
            with suppress(OSError):  # the thread still writes there
                each.cleanup()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
