"""What runs in the worker: TensorFlow, imported once, loads, executes, freezes and converts a model.

Imports TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from convertkit.artifact import Array
from convertkit.converters.tensorflow import routes
from convertkit.converters.tensorflow.complaints import sentence
from convertkit.converters.tensorflow.loading import Loaded, load_graph_def, load_saved_model
from convertkit.errors import ConvertKitError, SourceError, Unsupported
from convertkit.workers.process import Reply

_RUN_ERRORS = (tf.errors.OpError, ValueError, TypeError, RuntimeError, KeyError)


class TensorFlowService:
    """One loaded signature."""

    def __init__(self) -> None:
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._loaded: Loaded | None = None
        self._translated: routes.Translated | None = None
        self._changes = ""

    def open_saved_model(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Load a SavedModel's signature; gives inputs and outputs as [name, shape, dtype]."""
        self._changes = params["changes"]
        self._loaded = load_saved_model(Path(params["path"]), params["signature"], params["tags"], params["shapes"])
        return self._described()

    def open_graph_def(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Load a frozen graph; ``inputs`` and ``outputs`` are empty where they are to be found."""
        self._changes = params["changes"]
        self._loaded = load_graph_def(Path(params["path"]), params["inputs"], params["outputs"], params["shapes"])
        return self._described()

    def needs_sizes(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Why only the route that reads fixed sizes is left; empty where tf2onnx's result computes the same.

        ``params`` and ``arrays`` are those of ``convert``; the folder of ``to`` is made and removed.  What tf2onnx
        made is kept for the conversion.
        """
        loaded, to = self._opened(), Path(params["to"])
        try:
            self._translated = self._translated or routes.translated(loaded)
            to.parent.mkdir()
            routes.ROUTES[0].convert(self._job({**params, "made_by": ""}, arrays))
        except SourceError:  # the model itself fails on the feed
            raise
        except ConvertKitError as error:
            return Reply(str(error).splitlines()[0])
        finally:
            shutil.rmtree(to.parent, ignore_errors=True)
        return Reply("")

    def run(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """All outputs for one feed."""
        return Reply(arrays=self._outputs(arrays))

    def convert(self, params: dict[str, Any], arrays: dict[str, Array]) -> Reply:
        """Write canonical ONNX to ``to`` by the first route whose result computes the same; gives its name.

        ``shapes`` has a name where a dimension stays dynamic; ``feeds`` arrays are ``<index>/<input>``.  Without feeds,
        as for a model that fails on those that are made up, it is the first route that gives ONNX.
        """
        job = self._job(params, arrays)
        self._translated = None
        if job.feeds:
            self._refuse_changing(job.feeds[0], job.expected[0])
        refusals: list[tuple[routes.Route, ConvertKitError]] = []
        for route in routes.ROUTES:
            try:
                route.convert(job)
            except ConvertKitError as error:
                refusals.append((route, error))
                continue
            return Reply({"route": route.name, "refused": _told(refusals), "near": ""})
        if (nearest := routes.nearest(refusals)) is None:
            raise _combined(refusals, job)
        nearest.convert(job, compared=False)
        others = [each for each in refusals if each[0] is not nearest]
        near = next(str(error).splitlines()[0] for each, error in refusals if each is nearest)
        return Reply({"route": nearest.name, "refused": _told(others), "near": near})

    def _job(self, params: dict[str, Any], arrays: dict[str, Array]) -> routes.Job:
        """What a route is given, with what the model itself gives for the feeds."""
        loaded = self._opened()
        feeds = [{e.name: arrays[f"{index}/{e.name}"] for e in loaded.inputs} for index in range(params["feeds"])]
        expected = [self._outputs(feed) for feed in feeds]
        to, made = Path(params["to"]), self._translated
        return routes.Job(loaded, params["shapes"], feeds, expected, to, params["made_by"], made)

    def _refuse_changing(self, feed: Mapping[str, Array], before: Mapping[str, Array]) -> None:
        """Raise ``Unsupported`` for a model that changes a variable or draws, where a second call shows it."""
        if not self._changes:
            return
        after = self._outputs(dict(feed))
        if all(np.array_equal(before[name], after[name], equal_nan=before[name].dtype.kind in "fc") for name in before):
            return
        raise Unsupported(
            f"{self._changes}, so that two calls on the same input differ and nothing can be verified",
            ways_out=("a signature that takes what it draws, or what it keeps, as an input",),
        )

    def _opened(self) -> Loaded:
        if self._loaded is None:
            raise SourceError("no model is loaded")
        return self._loaded

    def _outputs(self, feed: dict[str, Array]) -> dict[str, Array]:
        loaded = self._opened()
        try:
            values = loaded.call({each.key: feed[each.name] for each in loaded.inputs})
        except _RUN_ERRORS as error:
            raise SourceError(f"TensorFlow fails on the model: {sentence(error)}") from error
        return {each.name: np.asarray(values[each.key]) for each in loaded.outputs}

    def _described(self) -> Reply:
        loaded = self._opened()
        ends = {"inputs": loaded.inputs, "outputs": loaded.outputs}
        value: dict[str, Any] = {key: [[e.name, e.shape, e.dtype] for e in each] for key, each in ends.items()}
        return Reply({**value, "loader": loaded.loader})


def _told(refusals: Sequence[tuple[routes.Route, ConvertKitError]]) -> list[str]:
    return [f"{route.name}: {error}" for route, error in refusals]


def _combined(refusals: Sequence[tuple[routes.Route, ConvertKitError]], job: routes.Job) -> ConvertKitError:
    """All routes' reasons as one refusal, with the flags that open the route of fixed sizes."""
    told = "; ".join(f"{route.name}: {str(error).splitlines()[0]}" for route, error in refusals)
    sizes = dict.fromkeys(size for shape in job.shapes.values() for size in shape if isinstance(size, str))
    flags = " ".join(f"--static {name}={1 if name == 'batch' else 'SIZE'}" for name in sizes)
    ways = (f"{flags}: StableHLO's route reads fixed sizes",) if flags and job.loaded.path else ()
    return Unsupported(f"no route from this model to ONNX gives the same results: {told}", ways_out=ways)
