"""Weights of torchao's classes in exported programs, read without torchao: as the plain tensors in them.

torch.export keeps such a weight as one parameter, an object of a subclass of ``torch.Tensor``, and has the graph take
the tensors in it by their names.  Nothing of torchao is imported: a class that stands in holds what the file holds, and
each tensor in it becomes a buffer of its own.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from convertkit.converters.pytorch.compat import files
from convertkit.errors import Unsupported

_NAMED = re.compile(r"Unsupported global: GLOBAL (torchao\.[\w.]+) was not")
_MOST_CLASSES = 50
_defined: set[str] = set()


class Held(torch.Tensor):  # type: ignore[misc]
    """A weight of an unknown class, with the tensors in it as attributes."""

    __torch_function__ = files.PLAIN_FUNCTIONS

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return [name for name, value in vars(self).items() if isinstance(value, torch.Tensor)], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, _types: Any, args: Any = (), _keywords: Any = None) -> Any:
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return args[0]
        raise NotImplementedError(f"{function} of a weight of the class {cls.__name__}")


class _Setting:
    """Anything else that lies beside the tensors: an enumeration, how activations were quantized."""

    def __init__(self, *_given: Any, **_named: Any) -> None:
        """What was given is of no use here: the graph has it, written out."""

    def __setstate__(self, _state: Any) -> None:
        """As above."""


def stand_in(refusal: str) -> bool:
    """Define the class of torchao that torch's unpickler refuses by its name; False where it refuses something else."""
    found = _NAMED.search(refusal)
    if found is None or found[1] in _defined or len(_defined) >= _MOST_CLASSES:
        return False
    name = found[1].rpartition(".")[2]
    kind = type(name, (Held if name.endswith("Tensor") else _Setting,), {})
    torch.serialization.add_safe_globals([(kind, found[1])])
    _defined.add(found[1])
    return True


def write_plainly(program: Any) -> None:
    """Make a buffer of each tensor that the graph takes out of a weight, in place."""
    weights = {name: value for name, value in program.state_dict.items() if isinstance(value, Held)}
    if not weights:
        return
    signature, specs = program.graph_signature, []
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in list(signature.input_specs):
        if spec.target not in weights:
            specs.append(spec)
            continue
        weight = weights[spec.target]
        for field, place in _opened(nodes[spec.arg.name], weight).items():
            name = f"{spec.target}_{field}"
            program.state_dict[name] = getattr(weight, field)
            specs.append(InputSpec(InputKind.BUFFER, TensorArgument(name=place), name, persistent=True))
        program.state_dict.pop(spec.target, None)
    signature.input_specs[:] = specs
    program.graph_module.recompile()


def _opened(weight: Any, held: Held) -> dict[str, str]:
    """The names of new arguments of the graph, in place of ``weight``, by which tensor of it each is."""
    made: dict[str, Any] = {}
    for reader in list(weight.users):
        field = reader.args[1] if reader.target is torch.ops.export.access_subclass_inner_tensor.default else None
        if field is None or isinstance(getattr(held, field, None), Held | None):
            raise Unsupported(
                f"the weight {weight.name} is an object of torchao's class {type(held).__name__}, which is not"
                " taken apart in the program",
                ways_out=("torch.export.export of the module as it was before torchao.quantization.quantize_",),
            )
        if field not in made:
            with weight.graph.inserting_before(weight):
                made[field] = weight.graph.placeholder(f"{weight.name}_{field}")
            made[field].meta = dict(reader.meta)
        reader.replace_all_uses_with(made[field])
        weight.graph.erase_node(reader)
    weight.graph.erase_node(weight)
    return {field: node.name for field, node in made.items()}
