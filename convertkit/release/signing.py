"""The signature of ``SHA256SUMS``: made and checked by OpenSSL with a key that lies in a file, without a network.

The file holds the bare signature (RFC 8032 for Ed25519), so that anyone can check it with ``openssl pkeyutl``.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from convertkit.errors import ToolError, UsageError
from convertkit.release.names import SIGNATURE, SUMS

_SECONDS = 60


def check_key(key: Path) -> None:
    """Raise ``UsageError`` for a file that is not there, ``ToolError`` where OpenSSL is not."""
    if not key.is_file():
        raise UsageError(f"the key {key} does not exist")
    if shutil.which("openssl") is None:
        raise ToolError("openssl is not installed, and it makes and checks signatures; install your system's openssl")


def sign(folder: Path, key: Path) -> None:
    """Write the signature of the release in ``folder`` by the private key in a PEM file."""
    check_key(key)
    done = _openssl("-sign", "-inkey", key, "-rawin", "-in", folder / SUMS, "-out", folder / SIGNATURE)
    if done.returncode or not (folder / SIGNATURE).stat().st_size:
        raise ToolError(f"openssl cannot sign with {key}: {_said(done)}")


def is_signed_by(folder: Path, key: Path) -> bool:
    """Whether the signature is that of the public key in a PEM file."""
    check_key(key)
    readable = _run("pkey", "-pubin", "-in", key, "-noout")
    if readable.returncode:
        raise UsageError(f"{key} is not a public key in PEM: {_said(readable)}")
    done = _openssl("-verify", "-pubin", "-inkey", key, "-rawin", "-in", folder / SUMS, "-sigfile", folder / SIGNATURE)
    return done.returncode == 0


def _openssl(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return _run("pkeyutl", *words)


def _run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["openssl", *map(str, words)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip().splitlines()[0] if (done.stderr or done.stdout).strip() else "no reason"
