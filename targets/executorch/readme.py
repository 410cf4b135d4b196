"""The README of what ships: the program's interface, how an app calls it, and what it was verified with."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.artifact import Artifact, TensorSpec
from convertkit.ports_table import ports_table
from convertkit.targets.executorch.runtime import runtime_name


def readme(artifact: Artifact, precision: str, delegates: int, left: Mapping[str, int]) -> str:
    """Markdown; ``left`` are the operators that XNNPACK did not take, with how many there are."""
    own = ", ".join(f"{count} {name}" for name, count in left.items()) or "none"
    return f"""# Model for ExecuTorch ({precision})

`model.pte` is one file for Android, iOS, Linux, macOS and Windows, on Arm and x86. A program has no names: inputs and
outputs are called by their places.

{ports_table("Inputs", artifact.inputs)}
{ports_table("Outputs", artifact.outputs)}
## In an app
```cpp
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

executorch::extension::Module module("model.pte");
auto input = executorch::extension::from_blob(values, {{{_sizes(artifact.inputs)}}});
auto result = module.forward(input);
```

The app links ExecuTorch's runtime, its XNNPACK backend, the portable kernels and, for a quantized model, the quantized
kernels.

## What runs where
XNNPACK computes {delegates} part{"" if delegates == 1 else "s"} of the program; ExecuTorch's own kernels: {own}.

## Verified with
{runtime_name()}, which executed this file. The report tells what it was compared with.
"""


def _sizes(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(str(size) for size in specs[0].shape) if specs else ""
