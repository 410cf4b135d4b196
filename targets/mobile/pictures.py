"""How pictures and sounds become inputs, as ``--images`` and ``--normalization`` say, for code that runs on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.data.images import ImageReader
from convertkit.errors import FeedError, MissingFramework, UsageError
from convertkit.model_flags import refuse_unit_scale
from convertkit.recipe import ExportOptions, ImageOptions
from convertkit.targets.mobile.ports import Port

_REACH = {"nearest": 0.0, "bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the input ``port``: its size in the file's layout, and the choices of ``--images``.

    ``planar`` says that channels come first in the file.  ``mean`` and ``std`` have one number for each channel.
    """

    port: Port
    height: int
    width: int
    channels: int
    planar: bool
    options: ImageOptions
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def reach(self) -> float:
        """How far the filter reaches, in pixels of the smaller picture."""
        return _REACH[self.options.filter]

    @property
    def bleed(self) -> float:
        """The share of a picture that ``--images crop`` takes off at each side."""
        return (1 - self.options.share) / 2

    def numbers(self, pixels: Array) -> Array:
        """``pixels`` (height, width, 3) of bytes as an app has to give them: what data for the export becomes."""
        try:
            from PIL import Image
        except ImportError as error:
            raise MissingFramework("pillow", "images") from error
        reader = ImageReader(_real(self.port), self.options)
        return self.port.given(reader.sample(Image.fromarray(pixels))[None])


def picture_of(name: str | None, flag: str, ports: Sequence[Port], options: ExportOptions) -> Picture | None:
    """The picture that ``flag`` asks for; ``UsageError`` where the input called so cannot be one."""
    if name is None:
        return None
    port = _asked(name, flag, ports)
    if len(port.shape) != 4 or port.shape[0] != 1 or port.api not in ("float32", "uint8"):
        raise UsageError(f"{flag} {name}: a picture is float32 or uint8 of four axes, and this is {port.sentence}")
    chosen = options.images
    for each in options.normalization:
        if each.input == name:
            refuse_unit_scale(each)
            chosen = replace(chosen, mean=each.mean, std=each.std)
    try:
        reader = ImageReader(_real(port), chosen)
    except FeedError as error:
        raise UsageError(f"{flag} {name}: {error}") from error
    axis = 1 if reader.channels_first else 3
    planar = (port.spec.perm.index(axis) if port.spec.perm else axis) == 1
    height, width = port.shape[2:] if planar else port.shape[1:3]
    mean, std = (tuple(each) * (reader.channels // len(each)) for each in (chosen.mean, chosen.std))
    return Picture(port, height, width, reader.channels, planar, chosen, mean, std)


def _real(port: Port) -> TensorSpec:
    """The input as the source has it: real numbers where integers stand for them."""
    return replace(port.spec, dtype=port.api)


def sound_of(name: str | None, flag: str, ports: Sequence[Port]) -> Port | None:
    """The input that takes PCM of 16 bits by ``flag``; ``UsageError`` where the one called so holds no waveform."""
    if name is None:
        return None
    port = _asked(name, flag, ports)
    if port.api != "float32" or sum(size > 1 for size in port.shape) > 1:
        raise UsageError(f"{flag} {name}: a waveform is float32 with one axis in time, and this is {port.sentence}")
    return port


def _asked(name: str, flag: str, ports: Sequence[Port]) -> Port:
    known = {port.name: port for port in ports}
    if name not in known:
        raise UsageError(f"{flag} {name}: no such input; there are: {', '.join(known)}")
    return known[name]


def example_pixels(seed: int) -> Array:
    """A picture of 41 x 53 that changes both smoothly and at once, (height, width, 3) of bytes."""
    rng = np.random.default_rng(seed)
    down, across = np.mgrid[0:41, 0:53]
    smooth = np.stack([down * 6, across * 4.7, (down + across) * 2.6], axis=2)
    return np.clip(smooth + rng.integers(-30, 31, (41, 53, 3)), 0, 255).astype(np.uint8)
