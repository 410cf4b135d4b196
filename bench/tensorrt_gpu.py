"""Packages of ``--target tensorrt`` in TensorRT on a GPU, beside PyTorch's eager mode on the same one.

    python bench/tensorrt_gpu.py build PACKAGES OUT
    python bench/tensorrt_gpu.py check PACKAGES OUT
    python bench/tensorrt_gpu.py pytorch OUT NAME …
    python bench/tensorrt_gpu.py page OUT docs/measurements/gpu.md

PACKAGES holds folders NAME.FORM, made from the zoo with a dynamic batch (``make_zoo.py --dynamic``).  ``build`` and
``check`` call the two scripts of each package; they need Python 3.9, NumPy, TensorRT and ``cuda-python`` alone.
``pytorch`` needs PyTorch with CUDA.  A line of JSON for each goes to ``OUT/rows.jsonl``; what is there is not done
again, and of several ``build`` at once each takes packages that no other has.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

BATCHES = (1, 8, 64)
REPEAT = 50
FORMS = ("float32", "float16", "int8")
EAGER = ("as it is", "TF32", "float16")
BEGIN, END = "<!-- bench/tensorrt_gpu.py -->", "<!-- end of tensorrt_gpu -->"
Row = dict[str, Any]


def build(packages: Path, out: Path) -> None:
    """Run ``build_engine.py`` of each package that no other process has begun with."""
    (out / "begun").mkdir(parents=True, exist_ok=True)
    for package in folders(packages):
        try:
            (out / "begun" / package.name).touch(exist_ok=False)
        except FileExistsError:
            continue
        began = time.time()
        words = ["--timing-cache", str(out / f"timing.{os.getpid()}")]
        with said_in(out / f"{package.name}.build"):
            try:
                code = script(package / "build_engine.py").main(words)
            except Exception as error:  # noqa: BLE001 - what a script raises is a finding
                code = repr(error)
        engine = package / "model.engine"
        size = engine.stat().st_size if engine.exists() else None
        note(out, {"key": f"build {package.name}", "code": code, "seconds": time.time() - began, "bytes": size})


class said_in:  # noqa: N801 - reads as a word
    """What the process prints, TensorRT's own messages too, goes to a file meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path, self._kept = path, [os.dup(1), os.dup(2)]

    def __enter__(self) -> None:
        with self._path.open("w", encoding="utf-8") as stream:
            self._to([stream.fileno(), stream.fileno()])

    def __exit__(self, *_: object) -> None:
        self._to(self._kept)
        for each in self._kept:
            os.close(each)

    def _to(self, places: Sequence[int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(places[0], 1)
        os.dup2(places[1], 2)


def check(packages: Path, out: Path) -> None:
    """Run ``check_gpu.py`` of each package that has an engine, and time its calls."""
    there = {row["key"] for row in rows(out)}
    for package in folders(packages):
        key = f"check {package.name}"
        if key in there or not (package / "model.engine").exists():
            continue
        note(out, {"key": key, "failed": "the process ended"})  # stands where the next line is never reached
        try:
            note(out, {"key": key, **checked(package, out)})
        except Exception as error:  # noqa: BLE001 - a runtime that fails is a row, too
            note(out, {"key": key, "failed": f"{type(error).__name__}: {error}"[:400]})


def checked(package: Path, out: Path) -> Row:
    """How far TensorRT's results are from the export's, and what calls take."""
    made = script(package / "check_gpu.py")
    facts = json.loads((package / "constraints.json").read_text(encoding="utf-8"))
    vectors = [*made.golden(facts), *made.edges(facts)]
    runtime = made.TensorRt(facts, argparse.Namespace(engine=package / "model.engine"))
    row = made.judged(runtime, vectors, facts, argparse.Namespace(batch=1, repeat=REPEAT))
    if row["differ"]:
        keep(runtime, vectors, out / f"{package.name}.npz")
    name, _, form = package.name.partition(".")
    inputs = {batch: made.timed(facts, vectors[0]["inputs"], batch) for batch in BATCHES}
    times: dict[str, Row] = {str(batch): {} for batch in BATCHES}
    for way, prepared in (("call", calling), ("copies", copying), ("graph", recorded)):
        try:
            for batch in BATCHES:
                times[str(batch)][way] = made.milliseconds(prepared(runtime, inputs[batch]), REPEAT)
        except Exception as error:  # noqa: BLE001 - not every engine can be recorded
            row[f"no {way}"] = f"{type(error).__name__}: {error}"[:400]
    return {"model": name, "form": form, **row, "times": times}


def keep(runtime: Any, vectors: Sequence[Row], path: Path) -> None:
    """What it computes of each vector, beside what it should."""
    import numpy as np

    found = {}
    for vector in vectors:
        for name, value in runtime.run(vector["inputs"]).items():
            found[f"{vector['name']}/{name}"] = value
            found[f"{vector['name']}/{name}/wanted"] = vector["outputs"][name]
    np.savez_compressed(path, **found)


def calling(runtime: Any, inputs: dict[str, Any]) -> Callable[[], object]:
    """A call with inputs and outputs on the GPU."""
    called: Callable[[], object] = runtime.call(inputs)
    return called


def copying(runtime: Any, inputs: dict[str, Any]) -> Callable[[], object]:
    """A call with inputs from the memory of the processor and outputs to it."""
    call, addresses = runtime._bound(inputs)
    import numpy as np

    given = {name: np.ascontiguousarray(value, runtime._dtype(name)) for name, value in inputs.items()}
    results = {name: runtime._empty(name) for name in runtime._outputs}

    def once() -> None:
        for name, value in given.items():
            runtime._copied(addresses[name], value.ctypes.data, value.nbytes)
        call()
        for name, value in results.items():
            runtime._copied(value.ctypes.data, addresses[name], value.nbytes)

    return once


def recorded(runtime: Any, inputs: dict[str, Any]) -> Callable[[], object]:
    """A call whose kernels are recorded once as a CUDA graph and replayed."""
    call, _ = runtime._bound(inputs)
    call()  # the first of a shape prepares what a recording may not hold
    cuda, stream, made = runtime._cuda, runtime._stream, runtime._made
    made(cuda.cudaStreamBeginCapture(stream, cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
    ran = runtime._context.execute_async_v3(stream)
    graph = made(cuda.cudaStreamEndCapture(stream))
    if not ran:
        raise RuntimeError("TensorRT records no graph; its messages are above")
    launched = made(cuda.cudaGraphInstantiate(graph, 0))

    def once() -> None:
        made(cuda.cudaGraphLaunch(launched, stream))
        made(cuda.cudaStreamSynchronize(stream))

    return once


def pytorch(out: Path, names: Sequence[str]) -> None:
    """The modules of the zoo in PyTorch on the GPU."""
    there = {row["key"] for row in rows(out)}
    for name in names:
        if f"eager {name} float16 {BATCHES[-1]}" not in there:
            for row in eager(name):
                note(out, row)


def eager(name: str) -> Iterator[Row]:
    """As it is (TF32 in convolutions), TF32 everywhere, float16."""
    import torch
    import zoo
    from gpu import repeated

    made = script(Path(__file__).parents[1] / "targets" / "tensorrt" / "check_gpu.py")
    module, inputs = zoo.build(name)
    for how in EAGER:
        torch.set_float32_matmul_precision("high" if how == "TF32" else "highest")
        mixed = how == "float16" and name == "bert_small"  # whose mask stays float32
        half = how == "float16" and not mixed
        model = (module.half() if half else module).cuda().eval()
        for batch in BATCHES:
            given = [torch.cat([value] * batch) for value in inputs]
            given = [value.half() if half and value.is_floating_point() else value for value in given]
            call = repeated(model, [value.cuda() for value in given], mixed=mixed)
            times = {"call": made.milliseconds(call, REPEAT)}
            times["copies"] = made.milliseconds(moved(model, given, mixed=mixed), REPEAT)
            row = {"key": f"eager {name} {how} {batch}", "model": name, "form": how, "batch": batch, "times": times}
            yield row | {"gpu": torch.cuda.get_device_name(), "version": torch.__version__}


def moved(model: Any, inputs: Sequence[Any], *, mixed: bool) -> Callable[[], object]:
    """A call with inputs from the memory of the processor and outputs to it."""
    import torch

    def once() -> None:
        with torch.inference_mode(), torch.autocast("cuda", torch.float16, enabled=mixed):
            found = model(*(value.cuda() for value in inputs))
        for each in found if isinstance(found, (tuple, list)) else (found,):
            each.cpu()

    return once


def folders(packages: Path) -> list[Path]:
    """Those with a model, the smaller first."""
    return sorted((each.parent for each in packages.glob("*/model.onnx")), key=lambda each: (size_of(each), each.name))


def size_of(package: Path) -> int:
    """Of the float32 form, so that the forms of a model follow each other."""
    first = package.with_name(f"{package.name.partition('.')[0]}.float32") / "model.onnx"
    return (first if first.exists() else package / "model.onnx").stat().st_size


def rows(out: Path) -> list[Row]:
    """What is there; of each key the last."""
    log = out / "rows.jsonl"
    found = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return list({row["key"]: row for row in found}.values())


def note(out: Path, row: Row) -> None:
    """One more."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "rows.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def script(path: Path) -> Any:
    """A script of a package as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(out: Path, path: Path) -> None:
    """Replace the section of the page."""
    from page_rows import replace_between

    found = {row["key"]: row for row in rows(out)}
    checks = [row for key, row in found.items() if key.startswith("check ") and "times" in row]
    models = list(dict.fromkeys(row["model"] for row in checks))
    torch = next(row for key, row in found.items() if key.startswith("eager "))
    head = f"{torch['gpu']}, TensorRT {checks[0]['version']}, PyTorch {torch['version']}.\n"
    lines = [BEGIN, head, *verdicts(found, models)]
    for batch in BATCHES:
        lines += ["", f"Batch {batch}:", "", *latencies(found, models, str(batch))]
    replace_between(path, "\n".join((*lines, END)), BEGIN, END)


def verdicts(found: dict[str, Row], models: Sequence[str]) -> Iterator[str]:
    """The greatest difference as a share of what is allowed and the seconds of the build, for each form."""
    yield from ("| model | " + " | ".join(FORMS) + " |", "|---" * (len(FORMS) + 1) + "|")
    for model in models:
        cells = []
        for form in FORMS:
            built, row = found.get(f"build {model}.{form}"), found.get(f"check {model}.{form}")
            if built is None:
                cells.append("–")
            elif built["code"] != 0:
                cells.append("not built")
            elif row is None or "failed" in row:
                cells.append("failed" if row else "not run")
            else:
                share = "no number" if row["share_of_allowed"] is None else f"{row['share_of_allowed']:.2g}"
                cells.append(f"{f'**{share}**' if row['differ'] else share}, {built['seconds']:.0f} s")
        yield f"| {model} | {' | '.join(cells)} |"


def latencies(found: dict[str, Row], models: Sequence[str], batch: str) -> Iterator[str]:
    """Milliseconds of PyTorch and of each form (a call, with copies, as a CUDA graph), and how many times as fast."""
    names = [*(f"PyTorch, {how}" for how in EAGER), *FORMS, *(f"ratio, {form}" for form in FORMS)]
    yield from ("| model | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|")
    for model in models:
        eager = {how: found.get(f"eager {model} {how} {batch}", {}).get("times") for how in EAGER}
        forms = {form: found.get(f"check {model}.{form}", {}).get("times", {}).get(batch) for form in FORMS}
        ratios = []
        for form in FORMS:
            beside, own = eager["float16" if form == "float16" else "as it is"], forms[form]
            ratios.append(f"{beside['call'] / own['call']:.1f}" if beside and own and "call" in own else "–")
        cells = [told(times) for times in (*eager.values(), *forms.values())]
        yield f"| {model} | {' | '.join((*cells, *ratios))} |"


def told(times: Row | None) -> str:
    """A cell."""
    return " / ".join(f"{value:.3f}" for value in times.values()) if times else "–"


def main() -> None:
    """One of the four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "check", "pytorch", "page"))
    parser.add_argument("places", nargs="+")
    asked = parser.parse_args()
    first, *rest = asked.places
    if asked.what == "pytorch":
        pytorch(Path(first), rest)
    else:
        {"build": build, "check": check, "page": page}[asked.what](Path(first), Path(rest[0]))


if __name__ == "__main__":
    main()
