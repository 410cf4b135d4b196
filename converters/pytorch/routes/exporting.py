"""The route through torch.export and torch's ONNX exporter on top of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.compat import exporters
from convertkit.converters.pytorch.load.registered_operators import (
    decompositions,
    refusal,
    unformed,
    unknown_node,
    untranslated,
)
from convertkit.converters.pytorch.model.failures import innermost
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.state import Slot
from convertkit.converters.pytorch.model.subject import Subject, to_tensor, value_for
from convertkit.converters.pytorch.operators.complex_numbers import makes_some
from convertkit.converters.pytorch.operators.masked_attention import keep_zeros
from convertkit.converters.pytorch.operators.missing_ops import substitutes
from convertkit.converters.pytorch.operators.resized import take_centres
from convertkit.converters.pytorch.operators.triangular import solve_at_once
from convertkit.converters.pytorch.operators.views import is_view_refused, lay_out_views, taken_apart
from convertkit.converters.pytorch.operators.written_out import written_out
from convertkit.converters.pytorch.routes.flat import Flat, is_constant
from convertkit.errors import Unsupported

OPSET = 18


def prepare() -> None:
    """Import what the export needs, so that forks find it imported.

    torch imports its tracer on its first use, some 1,200 modules; tracing a module that does nothing
    makes it do so.  No operator computes: the tracer works on fake tensors.
    """
    with torch.no_grad():
        torch.export.export(torch.nn.Identity(), (torch.empty(1),), strict=False)
    exporters.import_translators()


def export(
    subject: Subject,
    leaves: Sequence[Leaf],
    outputs: Sequence[str],
    slots: Sequence[Slot],
    feed: Mapping[str, Array],
    path: str,
) -> None:
    """Write the model to ``path``; ``feed`` is an example at which it computes."""
    taken = [leaf for leaf in leaves if not is_constant(leaf)]
    tensors = tuple(_example(leaf, feed[leaf.name]) for leaf in taken)
    dims = tuple(
        {axis: torch.export.Dim.AUTO for axis, dim in enumerate(leaf.shape) if isinstance(dim, str)} for leaf in taken
    )
    exporters.let_masks_be()
    with torch.no_grad():
        program = torch.export.export(
            Flat(subject, leaves, slots), tensors, dynamic_shapes=(dims,) if any(dims) else None, strict=False
        )
    write_program(program, [leaf.name for leaf in taken], outputs, path)


def _example(leaf: Leaf, array: Array) -> torch.Tensor:
    value = value_for(leaf, array)
    return value if isinstance(value, torch.Tensor) else to_tensor(array)


def _translations(program: Any) -> dict[Any, Any]:
    """Operators that torch's exporter does not translate, or not exactly; imported where one is needed."""
    from convertkit.converters.pytorch.operators import elementary  # it imports onnxscript, and that sympy

    found: dict[Any, Any] = elementary.translations()
    if hasattr(torch.ops.torchvision, "nms"):
        from convertkit.converters.pytorch.operators import detection

        found |= detection.translations()
    if any(str(node.target).startswith("quantized_decomposed.") for node in program.graph.nodes):
        from convertkit.converters.pytorch.operators import quantized

        found |= quantized.translations()
    return found


def write_program(program: Any, inputs: Sequence[str], outputs: Sequence[str], path: str) -> None:
    """Translate an exported program to ONNX under the given names.

    Without gradients: taking operators apart records them, and some have none for complex numbers.
    """
    with torch.no_grad():
        _write(program, inputs, outputs, path)


def _write(program: Any, inputs: Sequence[str], outputs: Sequence[str], path: str) -> None:
    keep_zeros(program)
    solve_at_once(program)
    take_centres(program)
    if table := {**substitutes(program), **decompositions()}:
        program = taken_apart(program, table)
    if makes_some(program):
        program = written_out(program, set(_translations(program)))
    try:
        _translate(program, inputs, outputs, path)
    except torch.onnx.OnnxExporterError as error:
        if (node := unformed(error, program.graph.nodes)) is not None:
            raise unknown_node(node) from error
        if not is_view_refused(innermost(error)):
            raise
        exporters.forget_pending_sizes(program)
        lay_out_views(program)
        _translate(program, inputs, outputs, path)
    except Unsupported:
        exporters.forget_pending_sizes(program)
        _translate(written_out(program, set(_translations(program))), inputs, outputs, path)


def _translate(program: Any, inputs: Sequence[str], outputs: Sequence[str], path: str) -> None:
    # ONNX IR imports sympy, and archives need neither
    from convertkit.converters.pytorch.operators.narrow_integers import widen_narrow_integers
    from convertkit.converters.pytorch.routes.declared import keep_types

    try:
        written = torch.onnx.export(
            program,
            (),
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=True,
            optimize=False,
            verbose=False,
            custom_translation_table=_translations(program),
        )
        assert written is not None, "of an exported program"
        widen_narrow_integers(written.model.graph)
        _keep_names(written.model.graph, inputs)
        keep_types(written.model.graph, program)
        _free_names(written.model.graph, outputs)
        written.save(path, external_data=False)
    except torch.onnx.OnnxExporterError as error:
        refused = refusal(error, lambda: _nodes(program)) or untranslated(error, lambda: _nodes(program))
        if refused is not None:
            raise refused from error
        raise


def _keep_names(graph: Any, inputs: Sequence[str]) -> None:
    """Call the inputs by their names, in place: the exporter gives one that the model returns the output's name."""
    if len(graph.inputs) == len(inputs):
        for value, name in zip(graph.inputs, inputs, strict=True):
            value.name = name


def _free_names(graph: Any, outputs: Sequence[str]) -> None:
    """Let no inner value be called like an output, in place: the exporter calls a value after its operator."""
    made = [value for node in graph.all_nodes() for value in node.outputs]
    ends, used = set(graph.outputs), {value.name for value in made}
    for value in made:
        if value.name in outputs and value not in ends:
            value.name = next(name for name in _numbered(f"{value.name}_inner") if name not in used)
            used.add(value.name)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(1))


def _nodes(program: Any) -> list[Any]:
    """The program's nodes, and those of the operators that it is taken apart into before it is translated."""
    exporters.forget_pending_sizes(program)
    return [*program.graph.nodes, *program.run_decompositions().graph.nodes]
