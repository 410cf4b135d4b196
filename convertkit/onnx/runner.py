"""ONNX Runtime as the reference that executes ONNX artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Timer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnx
import onnxruntime as ort

from convertkit.artifact import Array, Artifact
from convertkit.errors import ToolError, Unsupported
from convertkit.memory import is_large
from convertkit.onnx.complaints import AGAINST_RULES, MIXED_TYPES, complaint, of_a_library
from convertkit.onnx.crashes import ends_the_process
from convertkit.onnx.onnxruntime_compat import CANNOT_RUN, ERRORS, KERNEL_LACKING, holds, quantizes_by_thread
from convertkit.stage import Feed, Outputs, Portable

if TYPE_CHECKING:
    import onnx_ir as ir

    from convertkit.onnx.bfloats import Bfloats
    from convertkit.onnx.evaluator import Evaluator
    from convertkit.probing import Probe

_QUIET = 4
_LONGEST_LOOP = 60.0
"""Seconds that one call of a model with a loop may take, which by what it is given may never end."""


class OnnxRunner:
    """Runs an ONNX artifact on ONNX Runtime's CPU provider, graph optimisations off.

    Off, because fusions change rounding: an oracle must compute what the graph says.  Where this processor cuts sums of
    bytes at 16 bits, weights that are too large for it are made unsigned first; logarithms that have to be equal for
    equal elements are computed in double.  ``optimised=True`` is how users will run the file.  A file that ONNX Runtime
    has no kernels for, or whose opset it does not load, is executed with its bfloat16 operators in float32, written as
    opset 7 where it is older, or with its recurrent operators steps first, else by ONNX's reference evaluator; never
    one that users will run in ONNX Runtime.
    """

    def __init__(
        self, artifact: Artifact, *, optimised: bool = False, unread: Sequence[str] = (), threads: int = 0
    ) -> None:
        """``unread`` names values that must be computed although nothing reads them (``unread_statistics``).

        ``threads`` is what one operator may use, 0 what ONNX Runtime thinks best.
        """
        self._threads = threads
        self._artifact = artifact
        self._optimised = optimised
        self._unread = tuple(unread)
        self._session: ort.InferenceSession | Bfloats | None = None
        self._options: ort.SessionOptions | None = None
        self._reference: Evaluator | None = None
        self._stop: ort.RunOptions | None = None
        """Of a call that is stopped after ``_seconds``."""
        self._seconds = 0.0
        self._loops = artifact.path.is_file() and holds(artifact.path, b"Loop")
        self._runtime = f"ONNX Runtime {ort.__version__}"
        self.refusal = ""
        """Why ONNX Runtime does not load the file as it is, where something else executes it."""

    @property
    def runtime(self) -> str:
        """What executes the artifact, with its version."""
        return self._runtime

    def __enter__(self) -> Self:
        options = self._options = ort.SessionOptions()
        options.log_severity_level = _QUIET
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads burn a core each
        options.intra_op_num_threads = self._threads or int(quantizes_by_thread(self._artifact.path))
        # The arena grows by powers of two, and stays as long as any output: integer weights that are made real would
        # take up to three times their float size.
        options.enable_cpu_mem_arena = not is_large(self._artifact)
        if self._unread:  # what is not a file has no folder of its own
            folder = str(self._artifact.path.resolve().parent)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        if self._optimised and ends_the_process(self._artifact.path):
            raise ToolError(
                f"ONNX Runtime {ort.__version__} ends its process while it loads {self._artifact.path.name}, "
                "which computes products in float16; a source in float32 or --target tflite avoids it"
            )
        level = ort.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_ALL if self._optimised else level.ORT_DISABLE_ALL
        try:
            self._session = ort.InferenceSession(self._model(), options, providers=["CPUExecutionProvider"])
            if (exact := self._exact()) is not None:
                self._session = ort.InferenceSession(exact, options, providers=["CPUExecutionProvider"])
        except ERRORS as error:
            refused = ToolError(f"ONNX Runtime does not load {self._artifact.path.name}: {complaint(error)}")
            if MIXED_TYPES.search(str(error)):  # no other inputs help
                raise Unsupported(f"{refused}; export the model again, in one type of floats") from error
            if AGAINST_RULES.search(str(error)):
                raise Unsupported(f"{refused}; by ONNX's rules it is not a valid model") from error
            if (foreign := of_a_library(error)) is not None:
                raise foreign from error
            if self._optimised or not isinstance(error, CANNOT_RUN):
                raise refused from error
            self._evaluate_instead(error, refused)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        self._reference = None

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``ToolError`` where the runtime fails, or a model with a loop does not end."""
        return self.run_within(feed, _LONGEST_LOOP) if self._loops else self._results(feed)

    def _results(self, feed: Feed) -> Outputs:
        specs = {spec.name: spec for spec in self._artifact.inputs}
        encoded = {name: specs[name].encode(value) for name, value in feed.items() if name in specs}
        names = [spec.name for spec in self._artifact.outputs]
        values = self._values(names, encoded)
        pairs = zip(self._artifact.outputs, values, strict=True)
        return {spec.name: spec.decode(np.asarray(value)) for spec, value in pairs}

    def run_within(self, feed: Feed, seconds: float) -> Outputs:
        """``run``, stopped after so many seconds."""
        self._stop, self._seconds = ort.RunOptions(), seconds
        timer = Timer(seconds, setattr, (self._stop, "terminate", True))
        timer.start()
        try:
            return self._results(feed)
        finally:
            timer.cancel()
            self._stop = None

    def portable(self) -> Portable:
        """The file."""
        return Portable("onnxruntime", self._artifact.path)

    def with_threads(self, count: int) -> OnnxRunner:
        """The same with so many threads."""
        return OnnxRunner(self._artifact, optimised=self._optimised, unread=self._unread, threads=count)

    def probe(self) -> Probe:
        """What looks into the file."""
        from convertkit.onnx.probe import OnnxProbe

        return OnnxProbe(self._artifact)

    def invocation(self, feed: Feed) -> Callable[[], object]:
        """A call that computes all outputs for ``feed``."""
        specs = {spec.name: spec for spec in self._artifact.inputs}
        encoded = {name: specs[name].encode(value) for name, value in feed.items() if name in specs}
        return partial(self._values, [spec.name for spec in self._artifact.outputs], encoded)

    def _values(self, names: list[str], feed: dict[str, Array]) -> list[Array]:
        if self._reference is not None:
            return self._reference.run(names, feed)
        assert self._session is not None, "the runner is used as a context manager"
        try:
            values = self._session.run(names, feed, self._stop)
            return self._tables(names, values) if any(isinstance(value, list) for value in values) else list(values)
        except ERRORS as error:
            if self._stop is not None and self._stop.terminate:
                raise ToolError(
                    f"{self._artifact.path.name} did not end within {self._seconds:g} s for these inputs: "
                    "a loop in it may go on for ever"
                ) from error
            failed = ToolError(f"ONNX Runtime fails on {self._artifact.path.name}: {complaint(error)}")
            if self._optimised or not _lacks_form(error):
                raise failed from error
            self._evaluate_instead(error, failed)
            return self._values(names, feed)

    def _tables(self, names: list[str], values: Sequence[Any]) -> list[Array]:
        """Dictionaries of scores as the tables that a model read by us has in their place."""
        from convertkit.onnx.dictionaries import as_table, columns

        classes = columns(self._artifact.path)
        pairs = zip(names, values, strict=True)
        return [as_table(value, classes[name]) if name in classes else value for name, value in pairs]

    def _evaluate_instead(self, error: Exception, refused: ToolError) -> None:
        """In another form, or ONNX's reference evaluator; ``refused`` where that does not know it either."""
        if not self.refusal and (short := self._in_float32()) is not None:
            self._session = short
            self._runtime = f"ONNX Runtime {ort.__version__}, bfloat16 operators in float32"
        elif not self.refusal and (newer := self._as_seven()) is not None:
            self._session = newer
            self._runtime = f"ONNX Runtime {ort.__version__}, operators as in opset 7"
        elif not self.refusal and (turned := self._steps_first()) is not None:
            self._session = turned
            self._runtime = f"ONNX Runtime {ort.__version__}, recurrent operators steps first"
        else:
            from convertkit.onnx.evaluator import Evaluator

            self._reference = Evaluator.of(self._artifact.path)
            if self._reference is None:
                raise refused from error
            self._runtime = f"ONNX's reference evaluator {onnx.__version__}"
        self.refusal = complaint(error)

    def _in_float32(self) -> Bfloats | None:
        """A session of the model with its bfloat16 operators in float32; None where it has none, or does not load."""
        from convertkit.onnx.bfloats import session

        assert self._options is not None, "the runner is used as a context manager"
        try:
            return session(self._artifact.path, self._options, self._unread)
        except ERRORS:
            return None

    def _as_seven(self) -> ort.InferenceSession | None:
        """A session of the model in opset 7; None where it is not older, or does not load."""
        from convertkit.onnx.as_seven import session

        assert self._options is not None, "the runner is used as a context manager"
        try:
            return session(self._artifact.path, self._options)
        except ERRORS:
            return None

    def _steps_first(self) -> ort.InferenceSession | None:
        """A session of the model with no recurrent operator whose batch comes first; None without, or if it fails."""
        from convertkit.onnx.batch_first import session

        assert self._options is not None, "the runner is used as a context manager"
        try:
            return session(self._artifact.path, self._options)
        except ERRORS:
            return None

    def _model(self) -> str | bytes:
        if not self._unread:
            return str(self._artifact.path)
        proto = onnx.load_model(self._artifact.path, load_external_data=False)
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._unread)
        return bytes(proto.SerializeToString())

    def _exact(self) -> bytes | None:
        """The model in a form in which ONNX Runtime computes on this processor what its graph says; None where it does.

        Weights are unsigned where sums of products would be cut, and logarithms double where a deviation without an
        epsilon reads them.
        """
        if self._optimised or self._unread or is_large(self._artifact):
            return None
        from convertkit.onnx.load import load_own
        from convertkit.onnx.logarithms import widen_logarithms
        from convertkit.onnx.save import serialized
        from convertkit.onnx.unsigned import uncut

        model = load_own(self._artifact.path)
        exact = uncut(model)
        widened = widen_logarithms(exact)
        return b"".join(serialized(exact)) if widened or exact is not model else None


def optimised_runner(artifact: Artifact) -> OnnxRunner:
    """The runner of the delivered ONNX Runtime artifact: default optimisations, as users run it."""
    return OnnxRunner(artifact, optimised=True)


def unread_statistics(model: ir.Model) -> tuple[str, ...]:
    """Means and variances that training-mode norms compute for no reader.

    ONNX Runtime 1.31 lays an unread one over the norm's own input and then normalises with other statistics than the
    current ones, graph optimisations off or on; as outputs of the graph they keep their place.
    """
    norms = (node for node in model.graph if node.op_type == "BatchNormalization")
    trained = (node for node in norms if node.attributes.get_int("training_mode", 0) == 1)
    spare = (value for node in trained for value in node.outputs[1:])
    return tuple(str(value.name) for value in spare if value.name and not value.is_graph_output())


def _lacks_form(error: Exception) -> bool:
    """Whether a kernel refuses a form of its operator at run time, which the type of the error does not tell."""
    return "not supported" in str(error) or isinstance(error, KERNEL_LACKING)
