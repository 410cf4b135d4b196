"""What a handler of one TFLite operator is given, and the table that finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.targets.tf_serving.file import Tensor

Handler = Callable[["Call"], Any]
"""One TensorFlow tensor, or several in the operator's order."""
_PADDINGS = ("SAME", "VALID")
"""By number in TFLite's schema."""
_ACTIVATIONS = 5
"""None, RELU, RELU_N1_TO_1, RELU6, TANH."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operator: TensorFlow tensors, the same as constants where they are, options, what it has to give.

    A constant becomes a node of the program when it is asked for as a tensor.  ``graphs`` turns the index of a graph
    that the operator calls into a function of TensorFlow tensors.
    """

    tf: Any
    given: Sequence[Callable[[], Any] | None]
    constants: Sequence[Array | None]
    options: Mapping[str, Any]
    outputs: Sequence[Tensor]
    graphs: Callable[[int], Callable[..., list[Any]]]
    told: Sequence[Tensor | None] = ()
    """The inputs as the file has them."""

    def __getitem__(self, place: int) -> Any:
        """The input at ``place``; None for one that is left out."""
        made = self.given[place] if place < len(self.given) else None
        return None if made is None else made()

    @property
    def inputs(self) -> list[Any]:
        """All inputs."""
        return [self[place] for place in range(len(self.given))]

    def constant(self, place: int) -> Array:
        """The input at ``place`` as an array; ``Unsupported`` where it is computed."""
        value = self.constants[place] if place < len(self.constants) else None
        if value is None:
            raise computed(place)
        return value

    @property
    def padding(self) -> str:
        """``SAME`` or ``VALID``."""
        return _PADDINGS[self.options["padding"]]

    @property
    def strides(self) -> tuple[int, int]:
        """Over height and width."""
        return self.options["strideH"], self.options["strideW"]

    @property
    def dilations(self) -> tuple[int, int]:
        """Over height and width."""
        return self.options["dilationHFactor"], self.options["dilationWFactor"]

    def activated(self, x: Any) -> Any:
        """``x`` behind the activation that the operator has fused into it.

        Source: ActivationFunctionType in TFLite's schema.
        """
        nn, chosen = self.tf.nn, self.options.get("fusedActivationFunction", 0)
        made = {
            0: lambda v: v,
            1: nn.relu,
            2: lambda v: self.tf.clip_by_value(v, -1.0, 1.0),
            3: nn.relu6,
            4: self.tf.tanh,
        }
        check_activation(self.options)
        return made[chosen](x)


def check_activation(options: Mapping[str, Any]) -> None:
    """Raise ``Unsupported`` for one that :meth:`Call.activated` does not write: the schema has SIGN_BIT besides."""
    if options.get("fusedActivationFunction", 0) not in range(_ACTIVATIONS):
        raise Unsupported("its fused activation is not one that this program knows")


def computed(place: int) -> Unsupported:
    """The refusal of an input that a handler wants as a constant."""
    return Unsupported(f"its input {place} is not a constant")
