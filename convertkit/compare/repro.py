"""What differs, as files of its own: the part of both models, its inputs, and a script that shows the difference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact
from convertkit.compare.scan import Departure, Sides
from convertkit.errors import DeliveryError, full_disk
from convertkit.looking.opened import ONNX_FILES
from convertkit.probing import Inner
from convertkit.state import save_arrays

_SCRIPT = '''"""{name}: what {first} makes of it, and {second}.  Needs NumPy and {needs}."""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def onnx(name, given):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(HERE / name), options, providers=["CPUExecutionProvider"])
    read = {{each.name for each in session.get_inputs()}}
    return session.run(None, {{key: value for key, value in given.items() if key in read}})[0]


def tflite(name, given):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(HERE / name))
    inputs = {{each["name"]: each["index"] for each in interpreter.get_input_details()}}
    for key, index in inputs.items():
        interpreter.resize_tensor_input(index, given[key].shape)
    interpreter.allocate_tensors()
    for key, index in inputs.items():
        interpreter.set_tensor(index, given[key])
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    value, (scale, zero) = interpreter.get_tensor(output["index"]), output["quantization"]
    return (value.astype(np.float32) - zero) * np.float32(scale) if scale else value


expected = onnx("first.onnx", dict(np.load(HERE / "first.npz"))).astype(np.float64)
got = {run}("{file}", dict(np.load(HERE / "second.npz"))).astype(np.float64)
got = got.transpose(np.argsort({order}))
print("first ", expected.shape, "largest", np.abs(expected).max())
print("second", got.shape, "largest", np.abs(got).max())
if expected.shape == got.shape:
    apart = np.abs(expected - got)
    worst = np.unravel_index(np.argmax(apart), apart.shape)
    print("largest difference", apart[worst], "at", tuple(map(int, worst)), ":", expected[worst], "and", got[worst])
'''


def write(folder: Path, found: Departure, sides: Sides, second: Artifact) -> Path:
    """Write the files of one difference and return the script; ``DeliveryError`` where they cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _written(folder, found, sides, second)
    except OSError as error:
        raise full_disk(error) or DeliveryError(f"{folder} cannot be written: {error}") from error


def _written(folder: Path, found: Departure, sides: Sides, second: Artifact) -> Path:
    from convertkit.onnx.probe import given_name

    kind = "onnx" if second.format in ONNX_FILES else second.format
    reference, other = sides.probes
    cuts = [pair for pair in found.given if pair.reference.name in found.inputs]
    reference.cut([pair.reference.name for pair in cuts], [found.pair.reference.name], folder / "first.onnx")
    file = f"second.{kind}"
    other.cut([pair.other.name for pair in cuts], [found.pair.other.name], folder / file)
    mine = {given_name(pair.reference.name): found.inputs[pair.reference.name] for pair in cuts}
    theirs = {
        given_name(pair.other.name) if kind == "onnx" else pair.other.name: _stored(
            pair.other, found.inputs[pair.reference.name].transpose(found.orders[pair.reference.name])
        )
        for pair in cuts
    }
    save_arrays(folder / "first.npz", {**_ends(sides.reference, sides.feed), **mine})
    ends = {other.port(name): value for name, value in _ends(second, sides.how.given(sides.feed)).items()}
    save_arrays(folder / "second.npz", {**ends, **theirs})
    script = folder / "repro.py"
    script.write_text(
        _SCRIPT.format(
            name=re.sub(r"[^\w./:-]", "_", found.pair.other.name),  # it is the file's, and may hold anything
            first="first.onnx",
            second=file,
            needs="onnxruntime" if kind == "onnx" else "onnxruntime, ai-edge-litert",
            run=kind,
            file=file,
            order=tuple(map(int, found.order or range(found.got.ndim))),
        ),
        encoding="utf-8",
    )
    return script


def _ends(artifact: Artifact, feed: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of the whole model, as its runtime takes them."""
    specs = {spec.name: spec for spec in artifact.inputs}
    return {name: specs[name].encode(np.asarray(value)) for name, value in feed.items() if name in specs}


def _stored(value: Inner, real: Array) -> Array:
    """An inner value as the file holds it: integers where those stand for it."""
    wanted = np.dtype(value.dtype)
    if value.quantization is None or wanted.kind not in "iu":
        return np.ascontiguousarray(real.astype(wanted))
    steps = np.rint(real / np.float32(value.quantization.scale)) + value.quantization.zero_point
    return np.ascontiguousarray(steps.astype(wanted))
