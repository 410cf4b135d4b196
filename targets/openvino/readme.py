"""The README of what ships: which settings were used when it was verified, and which of them the file cannot hold."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.targets.openvino.runtime import runtime_name


def readme(precision: str, kernels: Mapping[str, int]) -> str:
    """Markdown; ``kernels`` are those of a quantized model that the CPU plugin took here."""
    counted = ", ".join(f"{count} {name}" for name, count in kernels.items())
    told = f"\n## Kernels\nOf the CPU plugin, where it was verified: {counted}.\n" if counted else ""
    return f"""# Model for OpenVINO ({precision})

`model.xml` is the graph, `model.bin` its weights: they belong together.

## Settings
```python
import openvino

settings = {{"INFERENCE_PRECISION_HINT": "f32"}}
model = openvino.Core().compile_model("model.xml", "CPU", settings)
```

- `INFERENCE_PRECISION_HINT`: without it, OpenVINO computes what is float in bfloat16 where the CPU has it, and in
  float16 on a GPU: faster, and less exact. The model was verified with `f32`.
- `DYNAMIC_QUANTIZATION_GROUP_SIZE`: 0, as the file itself says. With another number the plugin makes activations
  integers at every call where they meet integer weights.
- `LP_TRANSFORMS_MODE`: leave it. With `NO` a quantized model is computed in float.

## Verified with
{runtime_name()}. The report tells what it was compared with. The GPU and the NPU plugin read the same files; they
were not executed.
{told}"""
