"""Frequencies of rotary positions: ``base ** (-2 i / size)``, and how longer contexts stretch them.

Source: transformers' ``modeling_rope_utils``; computed in float32 there, as here, since that is what was trained.
"""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.huggingface.decoder import Rotation
from convertkit.converters.huggingface.settings import CONFIG, Settings
from convertkit.errors import SourceError, Unsupported

_THETA = 10_000.0


def rotation(settings: Settings, head_size: int, *, share: float = 1.0, theta: float = _THETA) -> Rotation:
    """Of the layers that see everything; ``share`` and ``theta`` are the family's own, where the file says neither."""
    stated = settings.table("rope_parameters")
    if stated is not None and (inner := stated.table("full_attention")) is not None:
        stated = inner
    scaled = stated or settings.table("rope_scaling") or Settings({})
    base = _number(scaled, settings, ("rope_theta",), ("rope_theta", "rotary_emb_base"), theta)
    part = _number(scaled, settings, ("partial_rotary_factor",), ("partial_rotary_factor", "rotary_pct"), share)
    return Rotation(_stretched(_plain(base, int(head_size * part)), scaled))


def sliding_rotation(settings: Settings, head_size: int) -> Rotation:
    """Of Gemma 3's layers with a window, which have a base of their own."""
    stated = settings.table("rope_parameters")
    inner = None if stated is None else stated.table("sliding_attention")
    scaled = inner or Settings({})
    base = _number(scaled, settings, ("rope_theta",), ("rope_local_base_freq",), _THETA)
    return Rotation(_stretched(_plain(base, head_size), scaled))


def _number(inner: Settings, outer: Settings, first: tuple[str, ...], then: tuple[str, ...], default: float) -> float:
    return inner.real(*first) if inner.has(first[0]) else outer.real(*then, default=default)


def _plain(base: float, size: int) -> Array:
    if size < 2 or size % 2:
        raise SourceError(f"{CONFIG}: rotary positions turn {size} numbers of a head, which are not pairs")
    powers = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    return np.asarray(np.float32(1.0) / np.power(np.float32(base), powers), np.float32)


def _stretched(plain: Array, scaled: Settings) -> tuple[float, ...]:
    kind = scaled.word("rope_type", "type", default="default")
    if kind == "default":
        made = plain
    elif kind == "linear":
        made = plain / np.float32(scaled.real("factor"))
    elif kind == "llama3":
        made = _llama3(plain, scaled)
    else:
        raise Unsupported(f"{CONFIG}: rotary positions of the type {kind!r}; default, linear and llama3 are understood")
    return tuple(float(each) for each in made.astype(np.float32))


def _llama3(plain: Array, scaled: Settings) -> Array:
    """Long waves are stretched by ``factor``, short ones stay, and those between are blended."""
    factor, low, high = (scaled.real(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    context = scaled.whole("original_max_position_embeddings")
    waves = np.float32(2 * math.pi) / plain
    stretched = np.where(waves > context / low, plain / np.float32(factor), plain)
    blend = (np.float32(context) / waves - np.float32(low)) / np.float32(high - low)
    between = (1 - blend) * stretched / np.float32(factor) + blend * stretched
    is_between = ~(waves < context / high) & ~(waves > context / low)
    return np.asarray(np.where(is_between, between, stretched), np.float32)
