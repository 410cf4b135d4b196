"""The README of what ships: names and settings, and what was executed."""

from __future__ import annotations

from convertkit.artifact import Artifact
from convertkit.ports_table import ports_table
from convertkit.targets.mnn.runtime import SETTINGS, WINOGRAD, runtime_name

_STORED = {
    "float32": "as float32",
    "fp16": "as float16, where they are of convolutions and products; MNN makes floats of them when it loads the file",
    "w8": "as int8, where they are of convolutions and products; MNN makes floats of them when it loads the file",
    "w4": "as int4, where they are of convolutions and products; MNN makes floats of them when it loads the file",
}


def readme(artifact: Artifact, precision: str) -> str:
    """Markdown."""
    inputs = ", ".join(f'"{spec.name}"' for spec in artifact.inputs)
    outputs = ", ".join(f'"{spec.name}"' for spec in artifact.outputs)
    return f"""# Model for MNN ({precision})

`model.mnn` is one file for Android, iOS, Linux, macOS and Windows. Weights are stored {_STORED[precision]}.

{ports_table("Inputs", artifact.inputs)}
{ports_table("Outputs", artifact.outputs)}
## In a program
```python
import MNN.expr as mnn
import MNN.nn

manager = MNN.nn.create_runtime_manager(({dict(SETTINGS)},))
manager.set_hint({WINOGRAD[0]}, {WINOGRAD[1]})
model = MNN.nn.load_module_from_file("model.mnn", [{inputs}], [{outputs}], runtime_manager=manager)
results = model.forward([mnn.const(array, list(array.shape), mnn.NCHW, mnn.float)])
```

- The hint is `WINOGRAD_MEMORY_LEVEL` 0. Without it MNN takes larger tiles for convolutions: faster, and up to a
  thousandth off.
- `precision`: with `low` MNN computes in float16 where the processor has it: faster, and less exact.
- `memory`: with `low` MNN keeps integer weights and makes activations integers at every call.
- MNN has integers of 32 bits: what is int64 above is `mnn.int` there, and so are flags.

## Verified with
{runtime_name()}, which executed this file on a CPU. The report tells what it was compared with. GPU backends were not
executed.
"""
