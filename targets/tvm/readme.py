"""The README of what ships: the libraries, how an app calls them, and what was executed."""

from __future__ import annotations

from collections.abc import Iterable

from convertkit.artifact import Artifact
from convertkit.ports_table import ports_table
from convertkit.targets.tvm.runtime import runtime_name


def readme(artifact: Artifact, platform: str, cpu: str, also: Iterable[str]) -> str:
    """Markdown."""
    others = "".join(f"| `model-{each}.so` | {each} | compiled from the same graph, not executed |\n" for each in also)
    return f"""# Model for TVM

| file | for | |
|---|---|---|
| `model.so` | {platform}{f", {cpu}" if cpu else ""} | executed, and compared with the source |
{others}
A library has one function, `main`, of TVM's virtual machine. Inputs and outputs are known by their places.

{ports_table("Inputs", artifact.inputs)}
{ports_table("Outputs", artifact.outputs)}
## In a program
```python
vm = tvm.relax.VirtualMachine(tvm.runtime.load_module("model.so"), tvm.cpu())
result = vm["main"](tvm.runtime.tensor(array))
```

An app links TVM's runtime, of the version below; nothing is compiled on the device.

## Verified with
{runtime_name()}. The report tells what it was compared with.
"""
