"""A page in a headless Chromium, driven through its debugging pipe: nothing but the browser is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_CODES = {"Tab": 9, "Enter": 13, " ": 32}


def needs_chromium() -> None:
    """Skip the module's tests where there is no browser."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium", allow_module_level=True)


class Browser:
    """One tab."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._waiting = b""
        self._last = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The answer to one call of Chromium's debugging protocol."""
        self._last += 1
        sent: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            sent["sessionId"] = self._session
        os.write(self._write, json.dumps(sent).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._last:
                assert "error" not in told, (method, told)
                return told["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            self._waiting += os.read(self._read, 1 << 16)
        one, _, self._waiting = self._waiting.partition(b"\0")
        told: dict[str, Any] = json.loads(one)
        return told

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file into a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.evaluate("document.readyState") != "complete":
            pass

    def evaluate(self, script: str) -> Any:
        """What a script comes to."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """One key, down and up."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        how = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _CODES[key]}
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            **how,
            **({"text": text} if text else {}),
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **how)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium of its own, which ends with the block."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        words = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        words += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run", "--hide-scrollbars"]
        started = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'  # where it reads calls and writes answers
        process = subprocess.Popen(
            ["bash", "-c", started, *words],
            pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(to_write, from_read)
        finally:
            os.close(to_write)
            os.close(from_read)
            process.terminate()
            process.wait(30)
