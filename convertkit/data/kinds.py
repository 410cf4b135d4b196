"""What kind of files a folder of data holds, seen from their names; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif"})
WAV_SUFFIXES = frozenset({".wav", ".wave"})


def holds_images(data: object) -> bool:
    """Whether this is a folder that is read as images: what holds neither arrays nor sounds, even where it is empty."""
    return _is_folder(data) and not holds_sounds(data)


def holds_sounds(data: object) -> bool:
    """Whether this is a folder that is read as WAV files."""
    return _is_folder(data) and any(file.suffix.lower() in WAV_SUFFIXES for file in Path(str(data)).rglob("*"))


def _is_folder(data: object) -> bool:
    return isinstance(data, str | Path) and Path(data).is_dir() and next(Path(data).glob("*.npy"), None) is None
