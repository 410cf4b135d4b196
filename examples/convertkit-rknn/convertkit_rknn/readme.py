"""The README of what ships: the files, how an app loads them, and what they were verified with."""

from __future__ import annotations

from convertkit.artifact import Artifact
from convertkit_rknn.runtime import runtime_name


def readme(chip: str, artifact: Artifact) -> str:
    """Markdown."""
    rows = "".join(
        f"| {kind} | {spec.name} | {' × '.join(str(size) for size in spec.shape)} | {spec.dtype} |\n"
        for kind, specs in (("input", artifact.inputs), ("output", artifact.outputs))
        for spec in specs
    )
    return f"""# Model for Rockchip's NPU ({chip})

`model.rknn` is the file that the runtime loads. `model.onnx` is the quantized graph that it was compiled from: keep it
to verify the file again, an app does not need it.

| | name | sizes | type |
|---|---|---|---|
{rows}
## On the board
```c
rknn_context context;
rknn_init(&context, "model.rknn", 0, 0, NULL);

rknn_input input = {{0}};
input.index = 0;
input.type = RKNN_TENSOR_FLOAT32;  // the runtime quantizes
input.fmt = RKNN_TENSOR_NCHW;
input.buf = values;
input.size = size;
rknn_inputs_set(context, 1, &input);
rknn_run(context, NULL);

rknn_output output = {{.want_float = 1}};
rknn_outputs_get(context, 1, &output, NULL);
```

The file itself holds int8 inputs and outputs; with `RKNN_TENSOR_FLOAT32` and `want_float` the runtime converts them.

## Verified with
{runtime_name()}: its simulator executed this model. The numbers are the simulator's; nothing was run on a board, and
there is no latency.
"""
