"""Running a model over feeds, as many samples at a time as there are processors.

Every sample is computed by one thread, so the numbers do not depend on how many there are, and
answers come in the order of the feeds.  State goes from call to call, so such models run one by one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import onnx_ir as ir
import onnxruntime as ort

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array
from convertkit.errors import ToolError
from convertkit.onnx.bfloats import executable
from convertkit.onnx.complaints import complaint
from convertkit.onnx.onnxruntime_compat import ERRORS
from convertkit.onnx.unsigned import for_sessions
from convertkit.stage import Feed
from convertkit.state import started, state_sizes

_MOST_WORKERS = 4
"""Each sample in flight holds a whole set of activations."""
_QUIET = 4
_CRASHES = ["FuseFp16InitializerToFp32NodeTransformer"]
"""ORT 1.31.1 ends the process while it loads a float16 product of a transposed value (its NCHWc pass, behind this)."""


def open_session(model: ir.Model) -> ort.InferenceSession:
    """A session on a model in memory; models beyond 2 GB have their weights beside them already.

    Quantized operators run as integer kernels where ONNX Runtime has them: these agree with the graph to
    one rounding, in a third of the time.  On a processor without VNNI they do so with unsigned weights, and from opset
    21 on with unsigned activations (``for_sessions``): what is quantized does not depend on the machine.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = 1
    if any(value.dtype == ir.DataType.FLOAT8E4M3FN for value in model.graph.initializers.values()):
        # ORT 1.31.1 takes pairs of E4M3 for pairs of integers at its higher levels: no kernel, or wrong numbers.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        return ort.InferenceSession(
            ir.to_proto(for_sessions(executable(model))).SerializeToString(),
            options,
            ["CPUExecutionProvider"],
            disabled_optimizers=_CRASHES,
        )
    except ERRORS as error:
        raise ToolError(f"ONNX Runtime does not load the model: {complaint(error)}") from error


def run_all(
    session: ort.InferenceSession, wanted: Sequence[str], feeds: Iterable[Feed], initial_state: Mapping[str, Array]
) -> Iterator[dict[str, Array]]:
    """Yield the wanted outputs for each feed; states that feeds leave out go from call to call."""
    inputs = {value.name for value in session.get_inputs()}
    states = [value.name for value in session.get_outputs() if value.name.startswith(NEXT_STATE_PREFIX)]
    if not wanted and not states:  # ONNX Runtime takes an empty list for all outputs
        yield from ({} for _ in feeds)
        return
    known = ({name: array for name, array in feed.items() if name in inputs} for feed in feeds)
    if states or initial_state:
        yield from _one_by_one(session, wanted, states, known, initial_state)
        return
    workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    with ThreadPoolExecutor(workers) as pool:
        flying: deque[Future[dict[str, Array]]] = deque()
        for feed in known:
            flying.append(pool.submit(_answer, session, tuple(wanted), feed))
            if len(flying) > workers:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()


def _one_by_one(
    session: ort.InferenceSession,
    wanted: Sequence[str],
    states: Sequence[str],
    feeds: Iterable[Feed],
    initial_state: Mapping[str, Array],
) -> Iterator[dict[str, Array]]:
    shapes = {value.name: tuple(value.shape) for value in session.get_inputs()}
    outputs = tuple(dict.fromkeys((*wanted, *states)))
    start = {name: array for name, array in initial_state.items() if name in shapes}
    state: dict[str, Array] | None = None
    sizes: dict[str, int] = {}
    for feed in feeds:
        now = state_sizes(shapes, feed)
        if state is None or now != sizes:
            state, sizes = started(start, shapes, now), now
        answer = _answer(session, outputs, {**state, **feed})
        state.update({STATE_PREFIX + name.removeprefix(NEXT_STATE_PREFIX): answer[name] for name in states})
        yield answer


def _answer(session: ort.InferenceSession, outputs: Sequence[str], feed: Feed) -> dict[str, Array]:
    try:
        values = session.run(list(outputs), feed)
    except ERRORS as error:
        raise ToolError(f"ONNX Runtime fails on the float model: {complaint(error)}") from error
    return dict(zip(outputs, values, strict=True))
