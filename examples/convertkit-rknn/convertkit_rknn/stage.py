"""Canonical QDQ ONNX → a file for Rockchip's NPU."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.stage import Stage, Tolerance
from convertkit.targets.forms.constants import fold_constants
from convertkit.workers.elsewhere import Elsewhere
from convertkit.workers.process import Worker
from convertkit_rknn.arithmetic import write_arithmetic
from convertkit_rknn.files import FILE, GRAPH, Build, seal
from convertkit_rknn.forms import write_products
from convertkit_rknn.norms import state_defaults
from convertkit_rknn.readme import readme
from convertkit_rknn.recurrent import leave_out_layout
from convertkit_rknn.runtime import SERVICE, VARIABLES, runtime_name
from convertkit_rknn.scores import leave_scores_float
from convertkit_rknn.twice import compute_twice
from convertkit_rknn.weight_steps import write_weight_steps
from convertkit_rknn.zero_points import move_zero_points

NEWEST_OPSET = 19
"""That RKNN-Toolkit2 2.5.0 reads."""
_INTEGER = Tolerance(
    "the NPU's kernels round each operator on their own and compute in float16 what stays in float",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
    near_ties=0.06,  # docs/measurements/rounding.md: 5e-6 of a step in one layer; behind others, which may have moved
)


class CompileRknn:
    """Writes ``model.rknn``, and ``model.onnx`` beside it, in a worker process that holds the toolkit."""

    name = "rknn"
    version = "5"
    accepts = frozenset({"onnx"})
    produces = "rknn"
    tolerance = _INTEGER

    def __init__(self, build: Build, elsewhere: Elsewhere, timeout_s: float | None = None) -> None:
        self._build, self._elsewhere, self._timeout_s = build, elsewhere, timeout_s

    @property
    def options(self) -> Mapping[str, object]:
        return {"chip": self._build.chip, "level": self._build.level, "compiler": runtime_name()}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """``Unsupported`` for what the toolkit does not read, ``ToolError`` is what it says."""
        model = canonicalize(load_model(source.path), NEWEST_OPSET)
        fold_constants(model)
        leave_out_layout(model)
        state_defaults(model)
        leave_scores_float(model)
        write_products(model)
        write_arithmetic(model)
        compute_twice(model)
        move_zero_points(model)
        write_weight_steps(model)
        for spec in source.inputs:
            if spec.dtype != "float32":
                ways = ("--target onnxruntime",)
                reason = f"the NPU takes float32, and this is {spec.dtype}"
                raise Unsupported(reason, subject=f"input {spec.name}", ways_out=ways)
        made = save_model(model, workdir / GRAPH, f"{self.name} {self.version}", source.initial_state)
        path = workdir / FILE
        with (
            build_folder() as folder,
            Worker(SERVICE, timeout_s=self._timeout_s, env=VARIABLES, elsewhere=self._elsewhere) as worker,
        ):
            shutil.copyfile(build_in(Path(folder), worker, made, self._build), path)
        (workdir / "README.md").write_text(readme(self._build.chip, made), encoding="utf-8")
        return replace(made, path=path, format=self.produces, sha256=sha256_of(path))


def build_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one build, whose path has the same length every time.

    The toolkit writes memory that it has not set into its file, and the length of a path moves what lies behind it.
    """
    return tempfile.TemporaryDirectory(prefix="convertkit-rknn-")


def build_in(folder: Path, worker: Worker, artifact: Artifact, build: Build) -> Path:
    """Compile the graph in the folder of ``artifact`` as ``build`` says, in ``folder``; the file, which lies there."""
    graph = artifact.path.with_name(GRAPH)
    shutil.copyfile(graph, folder / GRAPH)
    inputs = [[spec.name, [int(size) for size in spec.shape]] for spec in artifact.inputs]
    chosen = {"chip": build.chip, "level": build.level, "seal": seal(graph, build)}
    worker.call("build", {"model": str(folder / GRAPH), "rknn": FILE, "inputs": inputs, **chosen})
    return folder / FILE


_: type[Stage] = CompileRknn
