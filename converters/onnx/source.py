"""An opened ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.converters.onnx.computed_sizes import free_computed_sizes
from convertkit.converters.onnx.drawing import refusal_of_chance
from convertkit.converters.onnx.followed_sizes import follow_free_sizes
from convertkit.converters.onnx.tried_sizes import Stays, free_tried_sizes, tried_sizes
from convertkit.converters.onnx.weight_sizes import sizes_of_weights
from convertkit.onnx.canonical import canonicalize, freeze_dims, freeze_dims_left
from convertkit.onnx.dictionaries import told
from convertkit.onnx.inputs import fixed_sizes, with_input_options
from convertkit.onnx.load import load_model
from convertkit.onnx.qoperators import to_qdq
from convertkit.onnx.runner import OnnxRunner, unread_statistics
from convertkit.onnx.save import save_model
from convertkit.onnx.specs import interface
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, Runner, Stage, Tolerance
from convertkit.state import carried, state_beside
from convertkit.text import NOT_VERIFIED

_INTEGERS = Tolerance(
    "QLinear operators and the same computation in QDQ round on their own; depth amplifies single roundings",
    lsb=3.0,
    lsb_share=0.99,
    snr_db=20.0,
)


class OnnxSource:
    """An ONNX file: no framework is involved, so it is opened in this process."""

    concurrent = True

    def __init__(self, path: Path, options: ExportOptions) -> None:
        self._opened: ir.Model | None
        self._opened, untold = _opened(path)
        self._chance = refusal_of_chance(self._opened)
        self._allowed = options.allow_unverified
        self._runners: list[OnnxRunner] = []
        self._unread = unread_statistics(self._opened)
        self._tables = told(path)
        self._weighed = sizes_of_weights(self._opened)
        if self._weighed:
            freeze_dims(self._opened, self._weighed)
        inputs, outputs = interface(self._opened)
        specs = with_input_options(inputs, options.inputs)
        self._sizes = fixed_sizes(inputs, specs)
        state = state_beside(path, specs)
        self.artifact = Artifact(path, "onnx", specs, outputs, sha256_of(path), initial_state=state)
        self._tried = {} if self._chance else tried_sizes(self.artifact, untold)
        if self._tried:
            free_tried_sizes(self._opened, self._tried)
            self.artifact = replace(self.artifact, outputs=interface(self._opened)[1])

    @property
    def notes(self) -> tuple[str, ...]:
        """What became of dictionaries, what draws, and, where ONNX Runtime does not load the file, what executed it."""
        chance = self._chance
        begun = f"{NOT_VERIFIED}: " if self._allowed else ""
        drawn = [f"{begun}{chance.subject}: {chance.reason}"] if chance else []
        ran = ((runner.runtime, runner.refusal) for runner in self._runners if runner.refusal)
        evaluated = (f"the source was run by {runtime}: {refusal}" for runtime, refusal in dict.fromkeys(ran))
        weighed = (
            f"dimension {name} of the input is {size}: the weights take no other"
            for name, size in self._weighed.items()
        )
        return (*drawn, *self._tables, *weighed, *evaluated)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def runner(self) -> Runner:
        self._refuse_chance()
        self._runners.append(OnnxRunner(self.artifact, unread=self._unread))
        return self._runners[-1]

    def stage(self) -> Stage:
        self._refuse_chance()
        opened, self._opened = self._opened, None  # the stage changes the model: another stage reads the file again
        return CanonicalStage(self._sizes, opened, self._weighed, self._tried)

    def _refuse_chance(self) -> None:
        if self._chance is not None and not self._allowed:
            raise self._chance


class CanonicalStage:
    """ONNX of any age → canonical ONNX; QLinear operators become QDQ."""

    name = "canonical-onnx"
    version = "1"
    accepts = frozenset({"onnx"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32

    def __init__(
        self,
        sizes: Mapping[str, int],
        opened: ir.Model | None = None,
        weighed: Mapping[str, int] | None = None,
        tried: Mapping[str, Stays] | None = None,
    ) -> None:
        """``weighed`` are sizes that the weights demand, ``tried`` those that runs left: ``opened`` may have both."""
        self._sizes = dict(sizes)
        self._opened = opened
        self._weighed = dict(weighed or {})
        self._tried = dict(tried or {})

    @property
    def options(self) -> Mapping[str, object]:
        return {"fixed_dims": self._sizes} if self._sizes else {}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        opened, self._opened = self._opened, None
        model = opened or _opened(source.path)[0]
        free_tried_sizes(model, self._tried)
        freeze_dims_left(model, self._weighed)
        if self._sizes:
            freeze_dims(model, self._sizes)
        model = canonicalize(model)
        self.tolerance = _INTEGERS if to_qdq(model) else FLOAT32
        state = carried(source, self._sizes, workdir)
        return save_model(model, workdir / "canonical.onnx", f"{self.name} {self.version}", state)


def _opened(path: Path) -> tuple[ir.Model, frozenset[str]]:
    """The model with the sizes that rules tell, and the outputs of which they do not tell all."""
    model = load_model(path)
    free_computed_sizes(model)
    return model, follow_free_sizes(model)
