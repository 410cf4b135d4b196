"""The package's README: what lies in it, for which NPU, what was estimated and what was verified."""

from __future__ import annotations

from convertkit.targets.ethos_u.package import Facts


def readme(facts: Facts, flash_bytes: int) -> str:
    """Markdown; ``flash_bytes`` is the size of the file."""
    memory = ", ".join(f"{name} {count:,} bytes" for name, count in facts.memory_bytes.items())
    kinds = tuple(dict.fromkeys(kind for kind, _ in facts.cpu))
    adds = "".join(f"// and the one that adds {kind}\n" for kind in kinds)
    cpu = "\n".join(f"- {name} ({kind})" for kind, name in facts.cpu) or "none"
    return f"""# Model for {facts.accelerator}

| file | what it is |
|---|---|
| `model_vela.tflite` | the model for the NPU: operators `ethos-u`, which Arm's driver executes |
| `model.cc`, `model.h` | the same as an array, with the interface: scale and zero point of integers |
| `model.tflite` | what was compiled: full integers, for any TensorFlow Lite |
| `ethos-u.json` | the device, what runs where, the digests of both files |

Compiled by {facts.compiler} for `{facts.accelerator}`, system configuration `{facts.system_config}`, memory mode
`{facts.memory_mode}`. The command stream is for this NPU alone.

## In firmware
TensorFlow Lite Micro with the kernel `ethos_u` and Arm's driver:

```cpp
tflite::MicroMutableOpResolver<{1 + len(kinds)}> resolver;
resolver.AddEthosU();
{adds}```

## Estimates
By {facts.compiler}, not measured: {facts.cycles:,} cycles, {facts.ms:.3g} ms; {memory}. The file takes {flash_bytes:,}
bytes. The tensor arena holds the NPU's SRAM and what TensorFlow Lite Micro keeps itself.

## On the CPU
{cpu}

## Verified
`model.tflite` was verified, and `model_vela.tflite` was compiled from it; inputs and outputs have the same types,
scales and zero points in both. The NPU part was not executed here: run samples on the device and compare them with
what `model.tflite` gives.
"""
