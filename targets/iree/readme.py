"""The README of what ships: the modules, how an app calls them, and what was executed."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from convertkit.artifact import Artifact
from convertkit.ports_table import ports_table
from convertkit.targets.iree.runtime import ENTRY, runtime_name


def readme(artifact: Artifact, cpu: str, also: Iterable[str]) -> str:
    """Markdown."""
    others = "".join(
        f"| `model-{each}.vmfb` | {each} | compiled from the same graph, not executed |\n" for each in also
    )
    return f"""# Model for IREE

| file | for | |
|---|---|---|
| `model.vmfb` | {platform.machine()}, {cpu} | executed, and compared with the source |
{others}
A module has one function, `{ENTRY}`. Inputs and outputs are called by their places.

{ports_table("Inputs", artifact.inputs)}
{ports_table("Outputs", artifact.outputs)}
## In a program
```sh
iree-run-module --module=model.vmfb --device=local-task --function={ENTRY} --input=@input.npy
```

An app links IREE's runtime and its `local-task` driver; the file holds the code for the processor, and nothing is
compiled on the device.

## Verified with
{runtime_name()}. The report tells what it was compared with.
"""
