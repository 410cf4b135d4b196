"""Load SavedModels with the TensorFlow 2 or 1 loader, and frozen graphs.

Imports TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from convertkit.artifact import Array
from convertkit.converters.tensorflow.beginnings import example, numbers_behind, refuse_unfed
from convertkit.converters.tensorflow.compat import with_constants
from convertkit.converters.tensorflow.complaints import sentence
from convertkit.converters.tensorflow.defaults import WITH_DEFAULT
from convertkit.errors import SourceError, Unsupported, UsageError

Values = Mapping[str, Array]
Frozen = tuple[Any, list[str], list[str]]
"""A GraphDef, the names of its input tensors and those of its output tensors."""

Shapes = Mapping[str, list[int | None]]
"""What ``--input`` says of inputs, by name; None where a dimension is dynamic."""

_LOAD_ERRORS = (
    tf.errors.OpError, ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError, OSError,
    AssertionError, NotImplementedError, UnicodeDecodeError, OverflowError,
)  # fmt: skip
"""What TensorFlow raises for files that it cannot load; it promises no type of its own."""

_NO_OUTPUT = frozenset({"Const", "NoOp", "Placeholder", "PlaceholderWithDefault", "Assert", "Print", "PrintV2"})
_CONTROL = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})


@dataclass(frozen=True, slots=True)
class End:
    """An input or output: public name, the key or tensor it goes by here, shape (None where free), NumPy dtype."""

    name: str
    key: str
    shape: list[int | None]
    dtype: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A callable signature; ``path`` is empty for frozen files.

    ``call`` speaks keys.  ``freeze`` gives the frozen graph and its tensors, in the order of
    ``inputs`` and ``outputs``.
    """

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    call: Callable[[Values], Values]
    freeze: Callable[[], Frozen]
    loader: str
    path: str = ""
    signature: str = ""
    tags: tuple[str, ...] = ()


def load_saved_model(path: Path, signature: str, tags: Sequence[str], shapes: Shapes) -> Loaded:
    """The signature, by the TensorFlow 2 loader or, where that fails, by TensorFlow 1's."""
    try:
        return _by_tensorflow_2(path, signature, tags, shapes)
    except _LOAD_ERRORS as error:
        reason = sentence(error)
    try:
        return _by_tensorflow_1(path, signature, tags)
    except _LOAD_ERRORS as error:
        raise SourceError(f"{path}: TensorFlow does not load it: {reason}; as TF1: {sentence(error)}") from error


def _by_tensorflow_2(path: Path, key: str, tags: Sequence[str], shapes: Shapes) -> Loaded:
    model = tf.saved_model.load(str(path), tags=list(tags))
    function = _of_known_ranks(model.signatures[key], shapes)
    specs = function.structured_input_signature[1]
    # Nested structures are flattened in the order of their keys, so that is the order of the graph's placeholders.
    inputs = tuple(_end(name, specs[name], name) for name in sorted(specs))

    def call(feed: Values) -> Values:
        assert model is not None, "the variables live as long as the model"
        results = function(**{name: tf.constant(value) for name, value in feed.items()})
        return {name: value.numpy() for name, value in results.items()}

    outputs = _outputs(inputs, [(name, x, name) for name, x in sorted(function.structured_outputs.items())], call)

    def freeze() -> Frozen:
        made = with_constants(function)
        ends = [[x.name for x in each] for each in (made.inputs, made.outputs)]
        return made.graph.as_graph_def(add_shapes=True), *ends

    return Loaded(inputs, outputs, call, freeze, "TensorFlow 2", str(path), key, tuple(tags))


def _of_known_ranks(function: Any, shapes: Shapes) -> Any:
    """The function, traced again for inputs of ``shapes`` where it does not say their rank."""
    specs = function.structured_input_signature[1]
    unknown = [name for name, spec in specs.items() if spec.shape.rank is None]
    if not unknown or not all(name in shapes for name in unknown):
        return function
    known = {name: tf.TensorSpec(shapes[name], specs[name].dtype) if name in unknown else specs[name] for name in specs}

    def traced(**values: Any) -> Any:
        return function(**values)

    return tf.function(traced).get_concrete_function(**known)


def _by_tensorflow_1(path: Path, key: str, tags: Sequence[str]) -> Loaded:
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph)
        meta = tf.compat.v1.saved_model.load(session, list(tags), str(path))
    found = meta.signature_def[key]
    inputs = tuple(_end(name, graph.get_tensor_by_name(x.name), x.name) for name, x in sorted(found.inputs.items()))
    results = [(name, graph.get_tensor_by_name(x.name), x.name) for name, x in sorted(found.outputs.items())]
    call = _session_call(session, [key for _, _, key in results])
    outputs = _outputs(inputs, results, call)

    def freeze() -> Frozen:
        nodes = [each.key.partition(":")[0] for each in outputs]
        frozen = tf.compat.v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), nodes)
        return frozen, [each.key for each in inputs], [each.key for each in outputs]

    return Loaded(inputs, outputs, call, freeze, "TensorFlow 1", str(path), key, tuple(tags))


def load_graph_def(path: Path, input_names: Sequence[str], output_names: Sequence[str], shapes: Shapes) -> Loaded:
    """A frozen graph; placeholders are its inputs and what nothing reads its outputs, unless given.

    An input whose rank the graph does not say has that of ``shapes``; ``UsageError`` where it is not there either.
    """
    definition = tf.compat.v1.GraphDef()
    try:
        definition.ParseFromString(path.read_bytes())
        graph = _imported(definition)
        names = input_names or _placeholders(graph)
        results = output_names or _unread(graph)
        ends = {name: _tensor(graph, name) for name in names}
        given = {name: shapes[name] for name in names if ends[name][1].shape.rank is None and name in shapes}
        if given:
            graph = _imported(
                definition, {ends[name][2]: (ends[name][1].dtype, shape) for name, shape in given.items()}
            )
            definition = graph.as_graph_def()
            ends |= {name: (name, *_tensor(graph, _instead_of(ends[name][2]))[1:]) for name in given}
        ended = [_tensor(graph, name) for name in results]
        computed = [tensor for _, tensor, _ in ended]
        for name, tensor, _ in ends.values():
            _refuse_unknown_rank(name, tensor, computed)
        refuse_unfed({place for _, _, place in ends.values()}, computed)
        inputs = tuple(_end(*ends[name]) for name in names)
        session = tf.compat.v1.Session(graph=graph)
        call = _session_call(session, [key for _, _, key in ended])
        outputs = _outputs(inputs, ended, call)
    except _LOAD_ERRORS as error:
        raise SourceError(f"{path}: TensorFlow does not load this graph: {sentence(error)}") from error
    if not outputs:
        raise UsageError(f"{path}: every node is read by another; name the outputs: --signature name1,name2")

    def freeze() -> Frozen:
        return definition, [each.key for each in inputs], [each.key for each in outputs]

    return Loaded(inputs, outputs, call, freeze, "frozen graph")


def _placeholders(graph: Any) -> list[str]:
    """Those without a default; where there is none, those with one."""
    kinds = {
        kind: [op.name for op in graph.get_operations() if op.type == kind] for kind in ("Placeholder", WITH_DEFAULT)
    }
    return kinds["Placeholder"] or kinds[WITH_DEFAULT]


def _imported(definition: Any, instead: Mapping[str, tuple[Any, list[int | None]]] | None = None) -> Any:
    """A graph of the definition; tensors named in ``instead`` become placeholders of a dtype and shape."""
    graph = tf.Graph()
    with graph.as_default():
        placeholders = {
            place: tf.compat.v1.placeholder(dtype, shape, name=_instead_of(place))
            for place, (dtype, shape) in (instead or {}).items()
        }
        tf.import_graph_def(definition, input_map=placeholders, name="")
    return graph


def _instead_of(place: str) -> str:
    """The name of the placeholder that stands for a tensor."""
    return f"{place.replace(':', '_')}_of_known_rank"


def _refuse_unknown_rank(name: str, tensor: Any, results: Sequence[Any]) -> None:
    """Raise ``UsageError`` for an input of unknown rank, or of text, with the flag that begins the model elsewhere."""
    if tensor.dtype == tf.string:
        behind = numbers_behind(tensor, results)
        if behind is None:
            raise Unsupported(f"input {name!r} holds text, and so does everything behind it")
        raise UsageError(
            f"input {name!r} holds text, not numbers\n  try   --input {example(behind)}: the model begins at that node"
        )
    if tensor.shape.rank is None:
        raise UsageError(
            f"the rank of input {name!r} is unknown\n"
            f"  try   --input {example(tensor)}, with the shape that the model takes\n"
            "  try   --input NODE:SHAPE with a node behind it: the model begins there"
        )


def _tensor(graph: Any, name: str) -> tuple[str, Any, str]:
    """A tensor of the graph; a node's name means its first output."""
    place = name if ":" in name else f"{name}:0"
    return name.removesuffix(":0"), graph.get_tensor_by_name(place), place


def _outputs(
    inputs: Sequence[End], found: Sequence[tuple[str, Any, str]], call: Callable[[Values], Values]
) -> tuple[End, ...]:
    """Outputs, told apart from inputs of the same name; ``call`` finds shapes that the graph does not say."""
    taken = {each.name for each in inputs}
    made = []
    for name, tensor, key in found:
        shape = _shape_by_running(call, inputs, key) if tensor.shape.rank is None else None
        made.append(_end(f"{name}_out" if name in taken else name, tensor, key, shape))
    return tuple(made)


def _shape_by_running(call: Callable[[Values], Values], inputs: Sequence[End], key: str) -> list[int | None] | None:
    """The shape of a tensor behind a loop: what differs between two calls of different sizes is dynamic.

    None where the model fails on zeros and ones of those sizes.
    """
    for value in (0, 1):
        shapes = []
        for free in (2, 3):
            feed = {each.key: np.full([free if n is None else n for n in each.shape], value, each.dtype)
                    for each in inputs}  # fmt: skip
            try:
                shapes.append(np.shape(call(feed)[key]))
            except _LOAD_ERRORS:
                break
        else:
            if len(shapes[0]) != len(shapes[1]):
                raise UsageError(f"the rank of {key!r} depends on the input's size")
            return [one if one == other else None for one, other in zip(*shapes, strict=True)]
    return None


def _unread(graph: Any) -> list[str]:
    """Nodes that compute something nobody reads, by control edges neither."""
    read = {x.op.name for op in graph.get_operations() for x in op.inputs}
    read |= {before.name for op in graph.get_operations() for before in op.control_inputs}
    found = [op for op in graph.get_operations() if op.outputs and op.type not in _NO_OUTPUT and op.name not in read]
    # The counter of a loop ends in an Exit that nobody reads.
    return [op.name for op in found if op.type not in _CONTROL] or [op.name for op in found]


def _session_call(session: Any, keys: Sequence[str]) -> Callable[[Values], Values]:
    def call(feed: Values) -> Values:
        values: Values = session.run({key: key for key in keys}, dict(feed))
        return values

    return call


def _end(name: str, tensor: Any, key: str, shape: list[int | None] | None = None) -> End:
    """An end of the model; ``shape`` where the graph does not say it."""
    if tensor.shape.rank is not None:
        shape = tensor.shape.as_list()
    if shape is None:
        raise UsageError(
            f"the rank of {name!r} is unknown\n"
            f"  try   --input {name}:SHAPE where it is an input, with the shape that the model takes\n"
            "  try   exporting the model with an input signature of known rank"
        )
    return End(name, key, shape, tf.as_dtype(tensor.dtype).as_numpy_dtype.__name__)
