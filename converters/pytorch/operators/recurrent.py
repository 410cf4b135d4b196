"""LSTMs with projections, which ONNX's LSTM does not have, as the arithmetic of their steps.

Source: torch.nn.LSTM, ``proj_size``: the hidden state is ``W_hr · (o · tanh(c))`` and goes into the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from convertkit.errors import Unsupported

_MOST_STEPS = 1024


def projected_lstm(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """``aten::lstm.input`` step by step; ``NotImplemented`` for LSTMs without projections, which stay what they are."""
    if not differ(states):
        return NotImplemented
    x = x.transpose(0, 1) if batch_first else x
    if not isinstance(x.shape[0], int) or x.shape[0] > _MOST_STEPS:
        raise Unsupported(
            f"an LSTM with projections over {x.shape[0]} steps; expected a fixed number up to {_MOST_STEPS}"
        )
    directions, count = 2 if bidirectional else 1, 5 if has_biases else 3
    hidden, cells = [], []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[place * count : (place + 1) * count]
            steps = x.flip(0) if direction else x
            output, h, c = _layer(steps, states[0][place], states[1][place], own)
            outputs.append(output.flip(0) if direction else output)
            hidden.append(h)
            cells.append(c)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
    return x.transpose(0, 1) if batch_first else x, torch.stack(hidden), torch.stack(cells)


def _layer(x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """One direction of one layer; weights are those of input and hidden state, their biases, the projection's."""
    from_input, from_hidden, *biases, projection = weights
    offset = biases[0] + biases[1] if biases else None
    outputs = []
    for given in functional.linear(x, from_input, offset).unbind(0):
        i, f, g, o = (given + functional.linear(h, from_hidden)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = functional.linear(torch.sigmoid(o) * torch.tanh(c), projection)
        outputs.append(h)
    return torch.stack(outputs), h, c


def differ(states: Sequence[Tensor]) -> bool:
    """Whether hidden and cell states differ in width, as with projections only."""
    return bool(states[0].shape[-1] != states[1].shape[-1])
