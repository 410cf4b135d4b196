"""What a library for iPhones lacks of the runtime that an export is verified with."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.targets.ios.runtimes import AppleRuntime
from convertkit.targets.mobile.ports import Port, Ports

_RUNTIME_VERSION = b"min_runtime_version"


def check_limits(model: bytes, ports: Ports, runtime: AppleRuntime) -> None:
    """``Unsupported`` for element types, operators and state that the library does not have."""
    for port in (*ports.inputs, *ports.outputs):
        if port.dtype not in runtime.types:
            raise Unsupported(
                f"{runtime.library.product} has no tensors of {port.dtype}",
                subject=port.name,
                ways_out=_instead(port, runtime),
            )
    if runtime.min_runtime:
        _check_tflite(model, runtime)


def _instead(port: Port, runtime: AppleRuntime) -> tuple[str, ...]:
    other = () if runtime.library.is_pod else ("--ios-runtime litert",)
    return (*other, "--preprocess audio:…,int32, where the input is PCM") if port.dtype == "int16" else other


def _check_tflite(model: bytes, runtime: AppleRuntime) -> None:
    from ai_edge_litert import schema_py_generated as schema

    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    notes = {bytes(each.name): bytes(root.buffers[each.buffer].data) for each in root.metadata or ()}
    needed = notes.get(_RUNTIME_VERSION, b"").rstrip(b"\0").decode()
    if _numbers(needed) > _numbers(runtime.min_runtime):
        raise Unsupported(
            f"the model needs TensorFlow Lite {needed}, and the newest pod is {runtime.min_runtime}",
            ways_out=("--ios-runtime onnxruntime",),
        )
    if any(tensor.isVariable for graph in root.subgraphs for tensor in graph.tensors):
        raise Unsupported(
            "a fused recurrent operator keeps its state from call to call, and TensorFlowLiteSwift cannot reset it",
            ways_out=("--ios-runtime onnxruntime",),
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".") if each.isdigit())
