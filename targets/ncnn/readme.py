"""The README of what ships: blobs, their sizes, the settings of the verification."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.artifact import Artifact, TensorSpec
from convertkit.targets.ncnn.compile import Compiled, Port
from convertkit.targets.ncnn.runtime import SETTINGS, runtime_name

_STORED = {
    "float32": "float32",
    "fp16": "float16 where that is exact; ncnn makes floats of them when it loads the file",
    "w8": "tables of 256 floats and a byte for each weight; ncnn makes floats of them when it loads the file",
}
_AXES = {1: "w", 2: "h × w", 3: "c × h × w", 4: "c × d × h × w"}


def readme(source: Artifact, compiled: Compiled, precision: str) -> str:
    """Markdown."""
    options = "\n".join(f"net.opt.{name} = {_cpp(value)};" for name, value in SETTINGS.items())
    return f"""# Model for ncnn ({precision})

`model.param` is the graph as text, `model.bin` its weights: {_STORED[precision]}. `ports.json` says what is in the
tables below, for programs.

{_table("Inputs", source.inputs, compiled.inputs)}
{_table("Outputs", source.outputs, compiled.outputs)}
Blobs have no batch: one sample a call. Elements are in the order of the source. Places of an embedding (int32) count
from 0; negative ones are not counted from the end.

## In a program
```cpp
#include <ncnn/net.h>

ncnn::Net net;
{options}
net.load_param("model.param");
net.load_model("model.bin");

ncnn::Extractor extractor = net.create_extractor();
extractor.input("{compiled.inputs[0].blob if compiled.inputs else "input"}", input);
ncnn::Mat output;
extractor.extract("{compiled.outputs[0].blob}", output);
```

The settings are those that the files were verified with. With ncnn's own it computes in float16 or bfloat16 where the
processor has them, and convolutions in tiles (Winograd): faster, and less exact.

## Verified with
{runtime_name()}, which executed these files on a CPU. The report tells what they were compared with. Vulkan was not
executed.
"""


def _table(title: str, specs: Sequence[TensorSpec], ports: Sequence[Port]) -> str:
    lines = [
        f"| {port.blob} | {spec.name} | {' × '.join(map(str, spec.shape)) or 'a number'} | "
        f"{' × '.join(map(str, port.sizes))} ({_AXES[len(port.sizes)]}) | {'int32' if port.whole else 'float32'} |"
        for spec, port in zip(specs, ports, strict=True)
    ]
    head = f"| {title}: blob | in the source | sizes there | sizes of the blob | numbers |\n|---|---|---|---|---|"
    return "\n".join([head, *lines, ""])


def _cpp(value: bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
