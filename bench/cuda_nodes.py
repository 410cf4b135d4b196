"""Which nodes ONNX Runtime's CUDA provider takes, beside what ``providers.toml`` tells.

    python bench/cuda_nodes.py write FOLDER      here: cases of one node, from ONNX's node suite
    python bench/cuda_nodes.py run FOLDER        on the machine with the GPU, with onnxruntime-gpu and not convertkit
    python bench/cuda_nodes.py compare FOLDER    here: exit code 1 where the table tells something else, but of KNOWN

Each operator of the suite is written for several opsets and with each type that its first input may have.  A node is
taken where a session opens that must not fall back to the CPU; cases that ONNX Runtime runs nowhere are left out.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPSETS = (13, 18, 21, 22, 25)
KNOWN = {"Attention", "BatchNormalization", "DequantizeLinear", "QuantizeLinear", "Resize"}
"""Operators with cases that are told otherwise; docs/measurements/gpu.md says which and why."""
Row = dict[str, Any]


def write(folder: Path) -> None:
    """``cases.jsonl``: operator, version, type and the model."""
    with (folder / "cases.jsonl").open("w") as lines:
        for row in cases():
            lines.write(json.dumps(row) + "\n")


def cases() -> Iterator[Row]:
    """One case for each operator and set of attributes and inputs."""
    import onnx

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.conformance.suite import eligible
    from tests.conformance.suite import write as write_suite

    with tempfile.TemporaryDirectory() as name:
        write_suite(eligible(), Path(name))
        seen = set()
        for case in eligible():
            model = onnx.load(Path(name) / f"{case.name}.onnx")
            (node, *others) = model.graph.node
            key = (node.op_type, *sorted(each.name for each in node.attribute), *map(bool, node.input))
            if not others and key not in seen:
                seen.add(key)
                yield from variants(model)


def variants(model: Any) -> Iterator[Row]:
    """The model at each opset and with each type of its first input."""
    import onnx

    (node,) = model.graph.node
    for opset in OPSETS:
        if not onnx.defs.has(node.op_type, opset, ""):
            continue
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        first = schema.inputs[0].type_str if schema.inputs else ""
        for types in (each for each in schema.type_constraints if each.type_param_str == first):
            for type_str in types.allowed_type_strs:
                made = _retyped(model, schema, opset, type_str.removeprefix("tensor(").removesuffix(")"))
                if made is not None:
                    text = base64.b64encode(made.SerializeToString()).decode()
                    row = {"operator": node.op_type, "version": schema.since_version, "type": type_str}
                    yield {**row, "opset": opset, "model": text}


def _retyped(model: Any, schema: Any, opset: int, name: str) -> Any | None:
    """A copy whose first input, and all that has its type, are of ``name``; None where there is none."""
    import onnx
    from onnx import numpy_helper

    kinds = {"float": "FLOAT", "double": "DOUBLE"}
    try:
        kind = onnx.TensorProto.DataType.Value(kinds.get(name, name.upper()))
    except ValueError:
        return None
    numpy_type = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if kind == onnx.TensorProto.STRING:
        return None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    (node,) = made.graph.node
    first, typed = schema.inputs[0].type_str, set[str]()
    for ports, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
        typed |= {port for i, port in enumerate(ports) if port and formal[min(i, len(formal) - 1)].type_str == first}
    for value in (*made.graph.input, *made.graph.output):
        if value.name in typed:
            value.type.tensor_type.elem_type = kind
    for stored in made.graph.initializer:
        if stored.name in typed:
            stored.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(stored).astype(numpy_type), stored.name))
    made.opset_import[0].version = opset
    made.ir_version = min(made.ir_version, 11)
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return made


def run(folder: Path) -> None:
    """``taken.json``: for each case true, false, or null where ONNX Runtime does not run it at all."""
    import onnxruntime as ort

    ort.preload_dlls()
    ort.set_default_logger_severity(4)
    rows = [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines()]
    found = [taken(base64.b64decode(row["model"])) for row in rows]
    if not any(found):
        sys.exit("no case is taken: CUDA's provider does not start here")
    (folder / "taken.json").write_text(json.dumps({"onnxruntime": ort.__version__, "taken": found}))


def taken(model: bytes) -> bool | None:
    """Whether CUDA's provider takes the node."""
    if opens(model, ["CUDAExecutionProvider"], "1"):
        return True
    return False if opens(model, ["CUDAExecutionProvider", "CPUExecutionProvider"], "0") else None


def opens(model: bytes, providers: list[str], alone: str) -> bool:
    """Whether a session opens; ``alone`` forbids the CPU's provider."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", alone)
    try:
        ort.InferenceSession(model, options, providers=providers)
    except Exception:  # noqa: BLE001 - its exceptions have no other base, and that it fails is the answer
        return False
    return True


def compare(folder: Path) -> int:
    """Print what the table tells otherwise, by operator, version, what was found and what is told."""
    from convertkit.onnx.inspection import with_shapes
    from convertkit.onnx.load import load_own
    from convertkit.onnx.providers import constants_of
    from convertkit.targets.onnxruntime.providers import providers

    (cuda,) = [each for each in providers() if each.name == "CUDA"]
    found = json.loads((folder / "taken.json").read_text())["taken"]
    rows = [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines()]
    others, right = defaultdict[tuple[str, ...], list[str]](list), 0
    path = folder / "case.onnx"
    for row, there in zip(rows, found, strict=True):
        path.write_bytes(base64.b64decode(row["model"]))
        model = with_shapes(load_own(path))
        told = cuda.fault(next(iter(model.graph)), constants_of(model.graph))
        if there is None or there == (not told):
            right += there is not None
        else:
            key = (row["operator"], str(row["version"]), "taken" if there else "left", told)
            others[key].append(row["type"])
    for key, types in sorted(others.items()):
        print(*key, *sorted(set(types)), sep=" | ")
    print(f"{right} of {right + sum(map(len, others.values()))} as the table tells")
    return any(key[0] not in KNOWN for key in others)


def main() -> int:
    """One of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "run", "compare"))
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    if asked.what == "compare":
        return compare(asked.folder)
    (write if asked.what == "write" else run)(asked.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
