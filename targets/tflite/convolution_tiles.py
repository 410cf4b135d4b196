"""The tiles of XNNPACK's convolutions, which the quantizer and the lowering both go by."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from convertkit.tiles import Tiles, read_tiles

_TILES = Path(__file__).with_name("tiles.toml")


@cache
def convolution_tiles() -> Tiles:
    """The kernels of the machines that models are made for; see ``bench/tile_costs.py``."""
    return read_tiles(_TILES)
