"""The command in a child process, so that a sentence tells of a library that ends the process with a signal."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_ASKED_FOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FRAME = re.compile(r'  File "([^"]+)", line (\d+)')
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_OURS = Path(__file__).parent
_TRACE_BYTES = 1 << 16


def guarded(tell: Callable[[str], None]) -> None:
    """Go on in a child of this process; this one waits, and ends as the child did.

    Where a signal ended the child, ``tell`` is called with a sentence that names the library, and the exit code is 1.
    Signals that stop a command go to the child.  Elsewhere than on Linux there is no child: it would outlive a parent
    that is killed.
    """
    if sys.platform != "linux":
        return
    trace = os.memfd_create("convertkit-trace")
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED_FOR)
    parent = os.getpid()
    child = os.fork()
    if child:
        _follow(child, trace, tell)
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED_FOR)
    if not faulthandler.is_enabled():
        faulthandler.enable(trace, all_threads=False)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux alone)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _follow(child: int, trace: int, tell: Callable[[str], None]) -> None:
    for number in _ASKED_FOR:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda heard, frame: os.kill(child, heard))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED_FOR)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # while signals are passed on, its number stays its own
    for number in _ASKED_FOR:
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if -code in _ASKED_FOR:
        code = 128 - code
    elif code < 0:
        tell(_sentence(-code, os.pread(trace, _TRACE_BYTES, 0).decode(errors="replace")))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _sentence(number: int, trace: str) -> str:
    if number == signal.SIGKILL:
        return "the process was killed, most likely for lack of memory; nothing more was written"
    library, where = "a library", ""
    for path, line in _FRAME.findall(trace):  # the innermost first
        if Path(path).is_relative_to(_OURS):
            where = f" (convertkit/{Path(path).relative_to(_OURS)}, line {line})"
            break
        if library == "a library" and (found := _PACKAGE.search(path)):
            library = found[1]
    return f"{library} ended the process with {signal.Signals(number).name}{where}; nothing more was written"
