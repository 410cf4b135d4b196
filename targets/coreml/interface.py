"""What the package says of its inputs: sizes that may change, images; checked against the model, and written down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from convertkit.artifact import Array, Dim, TensorSpec
from convertkit.errors import Unsupported, UsageError
from convertkit.parity.feeds import batch_dim
from convertkit.target_options import flag
from convertkit.targets.coreml.options import IOS18, MOST_SHAPES, Choices, Image, Sizes, image_of
from convertkit.targets.coreml.states import carried_in

_RAISE = f"{flag('coreml', 'deployment-target')} iOS18"
_SHAPES, _IMAGE, _LABELS = (flag("coreml", name) for name in ("shapes", "image", "labels"))
_COLOURS = {"gray": 10, "rgb": 20, "bgr": 30}
"""Source: coremltools, mlmodel/format/FeatureTypes.proto, ``ImageFeatureType.ColorSpace``."""
_METADATA = "convertkit.image."
"""In the package's metadata, before an input's name: how its pixels become what the model gets."""
MOST_PIXEL = 255
RAISED = "iOS 18 is the oldest system for this package: it is the first with counted shapes of several inputs"


def settled(choices: Choices, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Choices:
    """``choices`` at the system that they need; ``UsageError`` or ``Unsupported`` where the model does not fit them."""
    _check_sizes(choices.sizes, inputs)
    names = [spec.name for spec in inputs]
    for image in choices.pictures:
        if image.name not in names:
            raise UsageError(f"{_IMAGE} {image.name}: the model has no input of that name; it has {', '.join(names)}")
        place_of_channels(image, inputs[names.index(image.name)])
    if len({image.name for image in choices.pictures}) < len(choices.pictures):
        raise UsageError(f"{_IMAGE} is given twice for one input")
    if choices.labels:
        _check_labels(choices.labels, [spec for spec in outputs if carried_in(spec.name, choices.kept) is None])
    return _risen(choices, inputs)


def _check_sizes(sizes: Sequence[Sizes], inputs: Sequence[TensorSpec]) -> None:
    """Every range is for a dynamic dimension, and every input counts its shapes or has ranges, not both."""
    dynamic = list(dict.fromkeys(dim for spec in inputs for dim in spec.shape if isinstance(dim, str)))
    by_name = {each.name: each for each in sizes}
    if len(by_name) < len(sizes):
        raise UsageError(f"{_SHAPES} is given twice for one dimension")
    if unknown := next((name for name in by_name if name not in dynamic), None):
        known = f"dynamic are {', '.join(dynamic)}" if dynamic else "no dimension is dynamic, every size is fixed"
        raise UsageError(f"{_SHAPES} {unknown}: the inputs have no dynamic dimension of that name; {known}")
    for spec in inputs:
        own = [by_name[dim] for dim in spec.shape if dim in by_name]
        if len({bool(each.counted) for each in own}) > 1:
            raise UsageError(f"{_SHAPES}: input {spec.name} counts sizes of one dimension and has a range of another")
        if own and spec.is_state:
            raise Unsupported("a state of sizes that change", subject=f"input {spec.name}")
        if math.prod(len(each.counted) for each in own if each.counted) > MOST_SHAPES:
            raise Unsupported(
                f"more than {MOST_SHAPES} shapes, which is what Core ML counts",
                subject=f"input {spec.name}",
                ways_out=(f"{_SHAPES} {own[0].name}={own[0].least}..{own[0].most}",),
            )


def check_batch(sizes: Sequence[Sizes], inputs: Sequence[TensorSpec]) -> None:
    """Raise ``UsageError`` where samples, which come one at a time, do not fit the batch."""
    batch = batch_dim([spec for spec in inputs if not spec.is_state])
    for each in sizes:
        if each.name == batch and (1 not in each.counted if each.counted else each.least > 1):
            raise UsageError(f"{_SHAPES} {each}: samples of --calib come one at a time, so 1 has to be among the sizes")


def _check_labels(labels: Sequence[str], outputs: Sequence[TensorSpec]) -> None:
    if len(outputs) != 1:
        raise UsageError(f"{_LABELS}: the model has {len(outputs)} outputs, a classifier has one")
    (output,) = outputs
    sizes = [dim for dim in output.shape if dim != 1]
    if not output.dtype.startswith("float") or any(isinstance(dim, str) for dim in sizes):
        raise UsageError(f"{_LABELS}: output {output.name} has not one real number for each class")
    if math.prod(int(dim) for dim in sizes) != len(labels):
        raise UsageError(
            f"{_LABELS}: {len(labels)} labels, and output {output.name} has the shape {list(output.shape)}"
        )


def _risen(choices: Choices, inputs: Sequence[TensorSpec]) -> Choices:
    """Shapes of several inputs that are counted need iOS 18."""
    counted = {each.name for each in choices.sizes if each.counted}
    several = sum(any(dim in counted for dim in spec.shape) for spec in inputs) > 1
    if not several or choices.version >= IOS18:
        return choices
    if choices.given:
        raise Unsupported("counted shapes of several inputs, which iOS 18 is the first to have", ways_out=(_RAISE,))
    return replace(choices, version=IOS18)


def place_of_channels(image: Image, spec: TensorSpec) -> int:
    """The axis of an image input that holds its channels; ``UsageError`` for an input that cannot be an image."""
    shape = spec.shape
    if any(isinstance(dim, str) for dim in shape):
        raise Unsupported(
            "an image of sizes that change", subject=f"input {spec.name}", ways_out=("--static NAME=SIZE",)
        )
    if len(shape) != 4 or shape[0] != 1 or not spec.dtype.startswith("float"):
        raise UsageError(f"{_IMAGE} {image.name}: {spec.dtype} {list(shape)} is not one image in floats")
    found = next((axis for axis in (1, 3) if shape[axis] == image.channels), None)
    if found is None:
        wanted = "1 channel" if image.channels == 1 else f"{image.channels} channels"
        raise UsageError(f"{_IMAGE} {image.name}={image.colour} is for {wanted}, the input has the shape {list(shape)}")
    return found


def pixels_of(image: Image, value: Array) -> Array:
    """The pixels, real numbers, that become ``value`` (1, channels, rows, columns)."""
    scale, bias = (np.reshape(each, (1, -1, 1, 1)) for each in (image.scale, image.bias))
    return np.asarray((value.astype(np.float64) - bias) / scale).astype(np.float32)


def of_pixels(image: Image, pixels: Array) -> Array:
    """What the model gets for these pixels."""
    scale, bias = (np.reshape(each, (1, -1, 1, 1)) for each in (image.scale, image.bias))
    return np.asarray(pixels.astype(np.float64) * scale + bias).astype(np.float32)


def images_in(metadata: Mapping[str, str]) -> dict[str, Image]:
    """Of a package, by the name of the input in it."""
    found = {key.removeprefix(_METADATA): text for key, text in metadata.items() if key.startswith(_METADATA)}
    return {name: image_of(text) for name, text in found.items()}


def describe(model: Any, shapes: Mapping[str, Sequence[Dim]], choices: Choices, images: Mapping[str, Image]) -> None:
    """Write sizes and images into a package's protobuf; ``shapes`` and ``images`` go by its inputs' names."""
    sizes = {each.name: each for each in choices.sizes}
    for feature in model.description.input:
        if image := images.get(feature.name):
            high, wide = (int(each) for each in shapes[feature.name][2:])
            feature.type.imageType.width, feature.type.imageType.height = wide, high
            feature.type.imageType.colorSpace = _COLOURS[image.colour]
            model.description.metadata.userDefined[_METADATA + feature.name] = str(image)
        elif any(dim in sizes for dim in shapes[feature.name]):
            _flexible(feature.type.multiArrayType, shapes[feature.name], sizes)


def _flexible(kind: Any, shape: Sequence[Dim], sizes: Mapping[str, Sizes]) -> None:
    """Counted shapes, the first as the usual one; else the least and the largest size of each dimension."""
    own = {dim: sizes[dim] for dim in shape if isinstance(dim, str)}
    del kind.shape[:]
    kind.ClearField("shapeRange")
    kind.shape.extend(own[dim].usual if isinstance(dim, str) else dim for dim in shape)
    for known in combined(list(own.values())) if all(each.counted for each in own.values()) else ():
        kind.enumeratedShapes.shapes.add().shape.extend(known[dim] if isinstance(dim, str) else dim for dim in shape)
    if not all(each.counted for each in own.values()):
        for dim in shape:
            span = kind.shapeRange.sizeRanges.add()
            ends = (own[dim].least, own[dim].most) if isinstance(dim, str) else (dim, dim)
            span.lowerBound, span.upperBound = ends


def combined(sizes: Sequence[Sizes]) -> list[dict[str, int]]:
    """Every choice of sizes at which the package is held against the model."""
    return [
        dict(zip([each.name for each in sizes], found, strict=True))
        for found in itertools.product(*(each.proven for each in sizes))
    ]
