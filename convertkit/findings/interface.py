"""The interface of what is delivered, as someone writes code against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convertkit.artifact import Array, Artifact, Dim, TensorSpec
from convertkit.data.kinds import holds_images
from convertkit.findings.values import Interface, Port
from convertkit.recipe import ExportOptions, Normalization
from convertkit.stage import Feed
from convertkit.state import saved_arrays

_SOURCE_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def interface(artifact: Artifact, options: ExportOptions, feed: Feed) -> Interface:
    """The interface of ``artifact``; ``feed`` is an input that it has run, in the source's layout."""
    norms = _normalizations(artifact.inputs, options)
    examples = {**saved_arrays(artifact.initial_state), **feed}
    inputs = tuple(_port(spec, norms.get(spec.name), _example(spec, examples)) for spec in artifact.inputs)
    return Interface(inputs, tuple(_port(spec, None, _ones(spec.shape)) for spec in artifact.outputs))


def _normalizations(inputs: Sequence[TensorSpec], options: ExportOptions) -> Mapping[str, Normalization]:
    """What the user said, else what was done to images of a folder."""
    given = {each.input: each for each in options.normalization}
    plain = [spec for spec in inputs if not spec.is_state]
    if given or len(plain) != 1 or not any(map(holds_images, (options.calib, options.eval))):
        return given
    (only,) = plain
    if "float" not in only.dtype and only.quantization is None:
        return given
    return {only.name: Normalization(only.name, options.images.mean, options.images.std)}


def _port(spec: TensorSpec, normalization: Normalization | None, example: tuple[int, ...]) -> Port:
    return Port(
        spec.name,
        spec.dtype,
        spec.shape,
        tuple(dict.fromkeys(dim for dim in spec.shape if isinstance(dim, str))),
        example,
        spec.source_shape,
        spec.perm,
        layout(spec.perm),
        normalization,
        spec.quantization,
        spec.is_state,
        spec.kept,
        spec.labels if spec.dtype != "string" else (),
    )


def layout(perm: tuple[int, ...]) -> str:
    """How the order of axes differs from the source's, in words; empty where it does not."""
    if not perm or perm == tuple(range(len(perm))):
        return ""
    source = _SOURCE_LAYOUTS.get(len(perm), "")
    to_last = (0, *range(2, len(perm)), 1)
    if source and perm == to_last:
        return f"{''.join(source[axis] for axis in perm)} where the source has {source}"
    return f"the source's axes in the order {', '.join(map(str, perm))}"


def _example(spec: TensorSpec, examples: Mapping[str, Array]) -> tuple[int, ...]:
    if spec.name not in examples:
        return _ones(spec.shape)
    shape = examples[spec.name].shape
    return tuple(shape[axis] for axis in spec.perm) if spec.perm else tuple(shape)


def _ones(shape: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(1 if isinstance(dim, str) else dim for dim in shape)
