"""What a decoder computes, as values: all that the graph, the reference and the reader of weights have to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions of one kind of layer: the first ``2 * len(frequencies)`` numbers of a head are turned.

    ``frequencies`` are float32 values in radians per place.  Pairs lie half of the turned numbers apart.
    """

    frequencies: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Norm:
    """``rms`` without a mean and a bias, ``rms1`` with weights that are stored less 1, or ``layer``."""

    kind: Literal["rms", "rms1", "layer"]
    epsilon: float


@dataclass(frozen=True, slots=True)
class Layer:
    """What may differ from layer to layer: how far back a query sees (None: everywhere), and its rotation."""

    window: int | None
    rotation: Rotation | None


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder-only transformer.

    Sizes are in elements.  ``scale`` multiplies the products of queries and keys, ``embedding_scale`` the embedded
    tokens.  Caps are those of ``cap * tanh(x / cap)``.  ``parallel`` layers add attention and feed-forward to the same
    input; ``sandwich`` layers normalise what each of both gives once more before it is added.  ``positions`` says that
    a table of learned positions is added to the embedded tokens.
    """

    family: str
    vocabulary: int
    width: int
    heads: int
    groups: int
    head_size: int
    inner: int
    context: int
    norm: Norm
    activation: Activation
    layers: tuple[Layer, ...]
    scale: float
    gated: bool = True
    tied: bool = False
    parallel: bool = False
    sandwich: bool = False
    head_norms: bool = False
    positions: bool = False
    query_bias: bool = False
    """Of queries, keys and values."""
    output_bias: bool = False
    inner_bias: bool = False
    embedding_scale: float = 1.0
    score_cap: float | None = None
    logit_cap: float | None = None
