"""PyTorch's own samples of its operators (OpInfo) through the routes, the hub and the TFLite compiler.

python bench/torch_samples.py make FOLDER [--most 2] [--kind int64]     exported programs with what torch answers
python bench/torch_samples.py run FOLDER [--only ABS …]     a row of FOLDER/rows.jsonl for each; those there are skipped
python bench/torch_samples.py page FOLDER                   docs/measurements/torch-samples.md

``make`` needs the package ``expecttest``, which torch's testing modules import.  A sample is right where the delivered
numbers are within 2e-5 of the largest, or eight times the source's own error, of torch in float64; integers are equal.
The converter judges its routes as ever; behind it nothing is verified: what is wrong here is what that has to find.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import logging
import pickle
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from page_rows import counted, latest, not_right

if TYPE_CHECKING:
    from convertkit.converters.pytorch.routes.conversion import Accepted
    from convertkit.workers.process import Reply, Worker

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measurements" / "torch-samples.md"
NEAR, OWN = 2e-5, 8.0
RUNTIMES = ("onnxruntime", "tflite")
_RANDOM = re.compile(
    r"(^|[._])(bernoulli|cauchy|dropout\w*|exponential|geometric|log_normal|multinomial|normal|rand\w*|rrelu|uniform)($|[._-])"
)
_PLACE = re.compile(r"\x1b\[\d+m|/[\w./-]*/(?=\w+\.(onnx|py))")
"""Colours, and folders in front of files, which reasons name."""


def samples(most: int, kind: str) -> Iterator[tuple[str, Any, list[Any]]]:
    """Name, module and tensors of samples spread over what each operator of this type brings."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils import _pytree as pytree

    torch.manual_seed(0)
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        dtype = getattr(torch, kind)
        if dtype not in op.dtypes or _RANDOM.search(name):
            continue
        given = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 61))
        name = name if dtype == torch.float32 else f"{name}.{kind}"
        flat = [pytree.tree_flatten((each.input, list(each.args), dict(each.kwargs))) for each in given]
        tensors = [[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] for leaves, _ in flat]
        whole = [place for place, each in enumerate(tensors) if each and all(leaf.numel() for leaf in each)]
        for place in sorted({whole[int(at)] for at in np.linspace(0, len(whole) - 1, most)}) if whole else ():
            yield f"{name}-{place}", _called(op.op, *flat[place]), tensors[place]


def _called(op: Any, leaves: list[Any], spec: Any) -> Any:
    """A module of the operator, whose inputs are the sample's tensors."""
    import torch
    from torch.utils import _pytree as pytree

    class Called(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            left = iter(tensors)
            filled = [next(left) if isinstance(each, torch.Tensor) else each for each in leaves]
            x, args, kwargs = pytree.tree_unflatten(filled, spec)
            found = [each for each in pytree.tree_leaves(op(x, *args, **kwargs)) if isinstance(each, torch.Tensor)]
            return tuple(found) if len(found) > 1 else found[0]

    return Called().eval()


def make(folder: Path, most: int, kind: str) -> None:
    """``NAME.pt2`` and ``NAME.pkl``: inputs, outputs in float32, and in float64 where the operator has it."""
    import torch
    from torch.utils import _pytree as pytree

    folder.mkdir(exist_ok=True)
    for name, module, tensors in samples(most, kind):
        with contextlib.suppress(Exception), torch.no_grad():  # what torch itself does not export is not a sample
            torch.export.save(torch.export.export(module, tuple(tensors), strict=False), folder / f"{name}.pt2")
            answers = [each.numpy(force=True) for each in pytree.tree_leaves(module(*(x.clone() for x in tensors)))]
            double = None
            with contextlib.suppress(Exception):
                wide = [each.double() if each.dtype == torch.float32 else each for each in tensors]
                double = [each.numpy(force=True) for each in pytree.tree_leaves(module(*wide))]
            data = {"inputs": [each.numpy(force=True) for each in tensors], "outs": answers, "double": double}
            (folder / f"{name}.pkl").write_bytes(pickle.dumps(data))


def differs(got: list[np.ndarray], outs: list[np.ndarray], double: list[np.ndarray] | None) -> str:
    """What is wrong with results; empty where nothing is."""
    if [(each.shape, each.dtype) for each in got] != [(each.shape, each.dtype) for each in outs]:
        return "other shapes or types"
    for place, (have, single) in enumerate(zip(got, outs, strict=True)):
        if single.dtype.kind != "f":
            if not np.array_equal(have, single):
                return "other integers"
            continue
        fits = double is not None and double[place].shape == single.shape
        truth = double[place] if double is not None and fits else single
        finite = np.isfinite(single)
        if not np.array_equal(have[~finite], single[~finite], equal_nan=True) or not np.isfinite(have[finite]).all():
            return "other places are not finite"
        error = np.abs(have[finite].astype(np.float64) - truth[finite]).max(initial=0.0)
        own = np.abs(single[finite].astype(np.float64) - truth[finite]).max(initial=0.0)
        scale = np.abs(single[finite]).max(initial=0.0)
        if error > NEAR * scale + OWN * (own if np.isfinite(own) else 0.0):
            return f"{error:.2g} off, largest {scale:.2g}"
    return ""


class Here:
    """The converter's worker, in this process: the same service, without a fork for each call."""

    def __init__(self) -> None:
        from convertkit.converters.pytorch.service import TorchService

        self._service = TorchService()

    def call(self, method: str, params: dict[str, Any], arrays: Any = None, *, isolated: bool = False) -> Reply:
        """The service's answer, or the error that it raises."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            reply: Reply = getattr(self._service, method)(params, arrays or {})
        return reply

    def begin(self, method: str, params: dict[str, Any], arrays: Any, *, isolated: bool) -> Callable[[], Reply]:
        """The same, computed at once."""
        reply = self.call(method, params, arrays)
        return lambda: reply


def converted(program: Path, work: Path) -> Accepted:
    """What the converter accepts for a program, as it does for a user's."""
    from convertkit.converters.pytorch.model.opening import Model, Opening
    from convertkit.converters.pytorch.model.remote import RemoteModel
    from convertkit.converters.pytorch.routes.conversion import Judging, convert
    from convertkit.progress import Silent

    worker, model = Here(), Model(str(program), "pt2", None, ())
    opening = Opening(model, cast("Worker", worker), lambda: worker.call("open", model.params()))
    remote = RemoteModel(opening)
    remote.loaded()
    return convert(remote, remote.described(0, work), work, Judging(0, edges=True, brief=True), Silent())


def results(program: Path, data: dict[str, Any], work: Path) -> Iterator[tuple[str, str, str]]:
    """Runtime, verdict and reason for one sample, the second runtime only where the first is right."""
    import onnxruntime as ort
    from ai_edge_litert.interpreter import Interpreter
    from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

    from convertkit.errors import ConvertKitError
    from convertkit.onnx.load import load_model
    from convertkit.targets.tflite.compile import compile_model
    from convertkit.targets.tflite.passes import Options

    unread = (ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.NotImplemented)
    runtime = RUNTIMES[0]
    try:
        made = converted(program, work)
        session = ort.InferenceSession(str(made.artifact.path))
        names = [leaf.name for leaf in made.interface.leaves]
        feed = dict(zip(names, data["inputs"], strict=True))
        wrong = differs(session.run(list(made.interface.output_names), feed), data["outs"], data["double"])
        yield runtime, "wrong" if wrong else "right", wrong
        if wrong or not feed:
            return
        runtime = RUNTIMES[1]
        compile_model(load_model(made.artifact.path), Options(input_layout="nchw")).write(work / "model.tflite")
        answer = Interpreter(str(work / "model.tflite"), num_threads=1).get_signature_runner()(**feed)
        wrong = differs([answer[name] for name in made.interface.output_names], data["outs"], data["double"])
        yield runtime, "wrong" if wrong else "right", wrong
    except ConvertKitError as error:
        yield runtime, "refused", str(error).splitlines()[0]
    except (*unread, RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        yield runtime, "fault", f"{type(error).__name__}: {error}"[:400]


def run(folder: Path, only: list[str]) -> None:
    """A row for each sample that has none."""
    import torch

    from convertkit.converters.pytorch.routes import exporting

    torch.set_num_threads(1)
    exporting.prepare()
    rows = folder / "rows.jsonl"
    done = {row["name"] for row in latest(rows)}
    for kept in sorted(folder.glob("*.pkl")):
        data, name = pickle.loads(kept.read_bytes()), kept.stem
        complex_ = any(each.dtype.kind == "c" for each in data["inputs"] + data["outs"])
        if name in done or complex_ or _RANDOM.search(name) or (only and name.rpartition("-")[0] not in only):
            continue
        began = time.perf_counter()
        row: dict[str, Any] = {"name": name}
        with tempfile.TemporaryDirectory() as work:
            for runtime, verdict, reason in results(folder / f"{name}.pt2", data, Path(work)):
                row[runtime] = [verdict, reason]
        row["s"] = round(time.perf_counter() - began, 2)
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def page(folder: Path) -> None:
    """How many samples are right, and all that are not."""
    import torch

    rows = sorted(latest(folder / "rows.jsonl"), key=lambda row: str(row["name"]))
    rows = [_plain(row, folder) for row in rows if not _RANDOM.search(row["name"])]
    made = {each.stem for each in folder.glob("*.pkl") if not _RANDOM.search(each.stem)}
    left = len(made - {row["name"] for row in rows})
    operators = {row["name"].rpartition("-")[0] for row in rows}
    lines = [
        "# PyTorch's own samples of its operators",
        "",
        f"Generated by `python bench/torch_samples.py` with torch {torch.__version__.partition('+')[0]}: {len(rows)}",
        f"samples of {len(operators)} operators of `torch.testing`, without those that draw random numbers or have",
        "complex numbers at the interface. Each was converted as a user's program is, compiled without further",
        "verification, and ran in the runtime on the sample itself. Right means within",
        f"{NEAR:g} of the largest number, or {OWN:g} times torch's own error in float32, of torch in float64.",
        f"{left} samples more were made and not run." if left else "All samples that were made were run.",
        "",
        "| | right | refused | wrong | fault |",
        "|---|---|---|---|---|",
        *(f"| {runtime} | {counted(rows, runtime)} |" for runtime in RUNTIMES),
        "",
        "TFLite is tried where ONNX Runtime is right. All that is not right:",
        "",
        *not_right(rows, RUNTIMES, "sample"),
    ]
    PAGE.write_text("\n".join(lines) + "\n")


def _plain(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The row without places of this machine in its reasons."""
    told = {runtime: row[runtime] for runtime in RUNTIMES if runtime in row}
    return row | {key: [verdict, _PLACE.sub("", why.replace(str(folder), ""))] for key, (verdict, why) in told.items()}


def main() -> None:
    """The three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "run", "page"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=2)
    parser.add_argument("--kind", default="float32", help="the tensors' type")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.command == "make":
        make(options.folder, options.most, options.kind)
    elif options.command == "run":
        run(options.folder, options.only)
    else:
        page(options.folder)


if __name__ == "__main__":
    main()
