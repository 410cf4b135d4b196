"""The ``config.pbtxt`` of a model in a Triton repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.artifact import Artifact, TensorSpec
from convertkit.targets.serving.backends import Backend
from convertkit.targets.serving.datatypes import triton_type
from convertkit.targets.serving.schema import model_config


@dataclass(frozen=True, slots=True)
class Serving:
    """How a server is to run a model.

    ``max_batch`` is the most samples that it puts into one call, 0 where it may not put requests together.
    ``delay_us`` is how long it waits for more of them, and ``instances`` how many copies of the model run at once.
    """

    name: str
    backend: Backend
    max_batch: int
    delay_us: int
    instances: int


def configuration(artifact: Artifact, serving: Serving, warmup: Mapping[str, tuple[Sequence[int], str]]) -> Any:
    """The configuration of ``artifact``; ``Unsupported`` for element types that Triton does not have.

    ``warmup`` has for each input the shape of a first call's array, and the file below ``warmup/`` that holds it.
    Its batch is 1 also for a model without batches.  Source: Triton, model_config.proto, ModelWarmup.batch_size.
    """
    config, backend = model_config()(name=serving.name, max_batch_size=serving.max_batch), serving.backend
    if backend.platform:
        config.platform = backend.platform
    else:
        config.backend = backend.name
    batched = serving.max_batch > 0
    for key, value in backend.batched if batched else ():
        config.parameters.add(key=key).value.string_value = value
    for spec in artifact.inputs:
        _describe(config.input.add(), spec, batched)
    for spec in artifact.outputs:
        _describe(config.output.add(), spec, batched)
    config.instance_group.add(kind=backend.kind, count=serving.instances)
    if batched:
        config.dynamic_batching.max_queue_delay_microseconds = serving.delay_us
    if backend.accelerator:
        config.optimization.execution_accelerators.gpu_execution_accelerator.add(name=backend.accelerator)
    first = config.model_warmup.add(name="golden", batch_size=1)
    for spec in artifact.inputs:
        shape, file = warmup[spec.name]
        given = first.inputs.add(key=spec.name).value
        given.data_type = _number(given, triton_type(spec))
        given.dims.extend(_at_least_one(shape[1:] if batched else shape))
        given.input_data_file = file
    return config


def _describe(tensor: Any, spec: TensorSpec, batched: bool) -> None:
    """Name, type and sizes, -1 for a dynamic one; Triton has no tensors without sizes, so these are reshaped."""
    shape = spec.shape[1:] if batched else spec.shape
    tensor.name = spec.name
    tensor.data_type = _number(tensor, triton_type(spec))
    tensor.dims.extend(_at_least_one([-1 if isinstance(size, str) else size for size in shape]))
    if not shape:
        tensor.reshape.SetInParent()


def _at_least_one(sizes: Sequence[int]) -> list[int]:
    return list(sizes) or [1]


def _number(message: Any, name: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name[name].number)
