"""The README of what ships: the files, how an app loads them, and what they were verified with."""

from __future__ import annotations

from convertkit.targets.qnn.devices import SOCS
from convertkit.targets.qnn.runtime import runtime_name


def readme(soc: str, binary: str) -> str:
    """Markdown."""
    chip = SOCS[soc]
    return f"""# Model for Qualcomm's NPU ({soc}, HTP v{chip.arch})

`model.onnx` is the file that ONNX Runtime loads; `{binary}` beside it is the context binary, which holds the model.
They belong together. Inputs and outputs are floats.

## In an app
ONNX Runtime with the QNN execution provider, whose libraries come from Qualcomm under its own licence:

```cpp
session_options.AppendExecutionProvider("QNN", {{{{"backend_path", "libQnnHtp.so"}}}});
session_options.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
Ort::Session session(env, "model.onnx", session_options);
```

QNN on the device has to be the version that compiled the binary or a later one.

## Verified with
{runtime_name()}: its simulator of the HTP executed this binary, every node of it. The numbers are the simulator's;
nothing was run on a device, and there is no latency.
"""
