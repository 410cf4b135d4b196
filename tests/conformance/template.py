"""A process that has imported what a worker needs, and forks one for each that is asked for.

It is a service itself (of a ``Worker``), so that it begins as the worker would: in the engine's environment, with what
that is lent, and the same variables.  This module imports nothing but Python's own library before it serves.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

PID = struct.Struct("<q")


class Template:
    """Its method ``serve`` never returns: the process ends with its parent."""

    def serve(self, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Import ``modules``, then fork a worker for each connection to the socket ``path``."""
        for name in params["modules"]:
            importlib.import_module(name)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with socket.socket(socket.AF_UNIX) as heard:
            heard.bind(params["path"])
            heard.listen()
            while True:
                connection, _ = heard.accept()
                if os.fork() == 0:
                    heard.close()
                    _become(connection)
                connection.close()


def _become(connection: socket.socket) -> None:
    """Serve as :mod:`convertkit.workers.serving` does; the parent says what takes the log, and is told the pid."""
    from convertkit.workers.answering import serve

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    _, (log,), _, _ = socket.recv_fds(connection, 1, 1)
    connection.sendall(PID.pack(os.getpid()))
    for stream in (1, 2):
        os.dup2(log, stream)
    os.dup2(connection.fileno(), 0)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    serve(os.dup(0), 0.0)
    os._exit(0)
