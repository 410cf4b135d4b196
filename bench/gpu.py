"""TensorRT's packages on a GPU: ONNX Runtime's CUDA provider beside its CPU and PyTorch's eager mode.

    python bench/gpu.py run PACKAGES OUT [NAME …]
    python bench/gpu.py page OUT docs/measurements/gpu.md

PACKAGES holds folders NAME.FORM of ``--target tensorrt``, made from the zoo with a dynamic batch (``make_zoo.py
--dynamic``).  ``run`` needs the GPU, PyTorch with CUDA, ``onnxruntime-gpu``, and neither convertkit nor TensorRT; where
TensorRT is there, ``check_gpu.py`` runs its engines, too.  A line of JSON for each goes to ``OUT/rows.jsonl``, and what
is there is not done again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

BATCHES = (1, 64)
WAYS = ("CPU", "CUDA", "CUDA, no TF32", "CUDA graph")
FORMS = ("float32", "float16", "bfloat16", "int8", "fp8")
Row = dict[str, Any]


def run(packages: Path, out: Path, names: list[str]) -> None:
    """Every package and every source, at each batch."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "rows.jsonl"
    done = {row["key"] for row in rows(log)}
    folders = [each for each in sorted(packages.iterdir()) if each.is_dir() and (not names or each.stem in names)]
    tasks: dict[str, Callable[[], Iterator[Row]]] = {}
    for name in dict.fromkeys(each.stem for each in folders):
        tasks[f"{name} PyTorch"] = partial(eager, name)
    for each in folders:
        tasks |= {f"{each.name} {way}": partial(onnx_runtime, each, way) for way in WAYS}
    for name in dict.fromkeys(each.stem for each in folders):
        tasks[f"{name} PyTorch, compiled"] = partial(compiled, name)
    for key, task in tasks.items():
        if key not in done:
            with log.open("a", encoding="utf-8") as stream:
                for row in finished(key, task):
                    stream.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)


def finished(key: str, task: Callable[[], Iterator[Row]]) -> list[Row]:
    """The rows of a task; a row with the reason where it fails."""
    try:
        return [{"key": key, **row} for row in task()]
    except Exception as error:  # noqa: BLE001 - a runtime that fails is a row, too
        return [{"key": key, "failed": f"{type(error).__name__}: {error}"[:400]}]


def rows(log: Path) -> list[Row]:
    """What is there."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def onnx_runtime(package: Path, way: str) -> Iterator[Row]:
    """How far a way of running it is from the results of the export, and what a call takes."""
    check = script(package / "check_gpu.py")
    facts = json.loads((package / "constraints.json").read_text())
    vectors = [*check.golden(facts), *check.edges(facts)]
    device = "cpu" if way == "CPU" else "cuda"
    runtime = check.OnnxRuntime(device, facts, argparse.Namespace(no_tf32=way == "CUDA, no TF32"))
    name, _, form = package.name.partition(".")
    for batch in BATCHES:
        asked = argparse.Namespace(batch=batch, repeat=50)
        row = {"model": name, "form": form, "runtime": way, "batch": batch}
        if way == "CUDA graph":  # a graph is replayed for the addresses of one call
            runtime.session = recorded(runtime.session)
            yield row | {"ms": check.milliseconds(runtime.call(check.timed(facts, vectors[0]["inputs"], batch)), 50)}
        else:
            yield row | check.judged(runtime, vectors, facts, asked)


def recorded(session: Any) -> Any:
    """The same model, its kernels recorded at the first call and replayed as a CUDA graph from then on."""
    import onnxruntime as ort

    providers = [("CUDAExecutionProvider", {"enable_cuda_graph": "1"}), "CPUExecutionProvider"]
    return ort.InferenceSession(session._model_path, session.get_session_options(), providers=providers)


def script(path: Path) -> Any:
    """``check_gpu.py`` as a module."""
    spec = importlib.util.spec_from_file_location("check_gpu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def eager(name: str) -> Iterator[Row]:
    """The module of the zoo in PyTorch on the GPU: as it is (TF32 in convolutions), TF32 everywhere, float16."""
    import torch
    import zoo

    check = script(Path(__file__).parents[1] / "targets" / "tensorrt" / "check_gpu.py")
    module, inputs = zoo.build(name)
    for how in ("as it is", "TF32", "float16"):
        torch.set_float32_matmul_precision("high" if how == "TF32" else "highest")
        half = how == "float16" and name != "bert_small"  # whose mask stays float32
        model = (module.half() if half else module).cuda().eval()
        for batch in BATCHES:
            given = [torch.cat([value] * batch).cuda() for value in inputs]
            fed = [value.half() if half and value.is_floating_point() else value for value in given]
            called = repeated(model, fed, mixed=how == "float16" and not half)
            row = {"model": name, "form": how, "runtime": "PyTorch", "batch": batch, "version": torch.__version__}
            yield row | {"ms": check.milliseconds(called, 50), "gpu": torch.cuda.get_device_name()}


def compiled(name: str) -> Iterator[Row]:
    """The same module, compiled by PyTorch with its kernels recorded as a CUDA graph."""
    import torch
    import zoo

    check = script(Path(__file__).parents[1] / "targets" / "tensorrt" / "check_gpu.py")
    module, inputs = zoo.build(name)
    model = torch.compile(module.cuda().eval(), mode="reduce-overhead")
    for batch in BATCHES:
        called = repeated(model, [torch.cat([value] * batch).cuda() for value in inputs], mixed=False)
        row = {"model": name, "form": "compiled", "runtime": "PyTorch", "batch": batch}
        yield row | {"ms": check.milliseconds(called, 50)}


def repeated(model: Any, inputs: list[Any], *, mixed: bool) -> Callable[[], object]:
    """A call that returns when the GPU is done; ``mixed`` lets PyTorch choose what is float16."""
    import torch

    def once() -> None:
        with torch.inference_mode(), torch.autocast("cuda", torch.float16, enabled=mixed):
            model(*inputs)
        torch.cuda.synchronize()

    return once


def main() -> None:
    """Run or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("places", nargs="+")
    asked = parser.parse_args()
    first, second, *names = asked.places
    if asked.what == "run":
        run(Path(first), Path(second), names)
    else:
        from gpu_page import END, page

        kept = Path(second).read_text(encoding="utf-8").partition(END)[2]  # what other scripts found
        Path(second).write_text(page(rows(Path(first) / "rows.jsonl")) + END + kept, encoding="utf-8")


if __name__ == "__main__":
    main()
