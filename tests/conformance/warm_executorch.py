"""What every compilation of ExecuTorch makes once in a process: importing this makes it, for all forks to come."""

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower


class _Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


with torch.no_grad():
    _exported = torch.export.export(_Sum().eval(), (torch.ones(2),), strict=False)
to_edge_transform_and_lower(_exported, partitioner=[XnnpackPartitioner()]).to_executorch()
