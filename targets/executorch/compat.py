"""What PyTorch does not promise: ``tests/targets/executorch/test_executorch.py`` runs on it from end to end."""

from __future__ import annotations

from typing import Any

import executorch.kernels.quantized  # noqa: F401 - the kernels of pairs that nothing delegates
import torch
import torch.ao.quantization.fx._decomposed


def spec_violation() -> type[Exception]:
    """What is raised for an operator that is not of the set which ExecuTorch has kernels for."""
    from torch._export.verifier import SpecViolationError

    found: type[Exception] = SpecViolationError
    return found


def quantized_operators() -> Any:
    """What QuantizeLinear and DequantizeLinear become; importing this module registers them."""
    return torch.ops.quantized_decomposed
