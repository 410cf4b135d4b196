"""The worker's side of ``--recover``: PyTorch lives here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from convertkit.artifact import Array
from convertkit.onnx.load import load_model
from convertkit.quantization.graph.sparse import pruned, sparse
from convertkit.quantization.recovery.network import Network
from convertkit.quantization.recovery.optimizer import Optimizer
from convertkit.quantization.recovery.training import train
from convertkit.workers.process import Reply

_THREADS = 1
"""More of them wait for each other on layers as small as these, and sums depend on how many there are."""


class Recovery:
    """Trains one model."""

    def train(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """New arrays for initializers, by their names; the value tells how it went."""
        torch.set_num_threads(_THREADS)
        torch.manual_seed(params["seed"])
        original, changed = load_model(Path(params["teacher"])), load_model(Path(params["student"]))
        teacher = Network(original)
        for weight in teacher.weights:
            weight.real.requires_grad_(False)
        student = Network(changed, pruned(changed.graph) | sparse(original.graph))
        samples, held_out = ({
            name.partition(":")[2]: torch.from_numpy(np.array(array))
            for name, array in arrays.items() if name.startswith(part)
        } for part in ("train:", "held:"))  # fmt: skip
        seed = params["seed"] % 2**63
        count = len(next(iter(samples.values())))
        feeds = [{name: value[place].numpy() for name, value in samples.items()} for place in range(count)]
        optimizer = Optimizer(original, changed, student, feeds, seed)
        done = train(teacher, student, optimizer, samples, held_out, params["steps"], seed)
        trained = {str(weight.stored.name): weight.array() for weight in student.weights}
        return Reply({"steps": done.steps, "losses": list(done.losses)}, trained)
