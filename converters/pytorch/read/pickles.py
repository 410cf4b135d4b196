"""Looking into pickles without executing them."""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
import re
from dataclasses import dataclass
from typing import IO

_MAX_OPCODES = 5_000_000
_STRINGS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "SHORT_BINSTRING"})
_MEMO_PUTS = frozenset({"BINPUT", "LONG_BINPUT", "PUT"})
_MEMO_GETS = frozenset({"BINGET", "LONG_BINGET", "GET"})
_BUILTINS = frozenset(
    {"set", "frozenset", "complex", "bytearray", "list", "dict", "tuple", "int", "float", "bool", "str"}
)
_DATA_MODULES = {
    "collections": frozenset({"OrderedDict", "defaultdict", "Counter"}),
    "torch._utils": frozenset(
        {
            "_rebuild_tensor",
            "_rebuild_tensor_v2",
            "_rebuild_tensor_v3",
            "_rebuild_parameter",
            "_rebuild_parameter_with_state",
            "_rebuild_qtensor",
            "_rebuild_sparse_tensor",
            "_rebuild_meta_tensor_no_storage",
            "_rebuild_device_tensor_from_numpy",
        }
    ),
    "torch._tensor": frozenset({"_rebuild_from_type_v2"}),
    "torch.nn.parameter": frozenset({"Parameter"}),
    "torch.serialization": frozenset({"_get_layout"}),
    "torch.storage": frozenset({"UntypedStorage", "TypedStorage"}),
    "numpy": frozenset({"dtype", "ndarray"}),
    "numpy.core.multiarray": frozenset({"scalar", "_reconstruct"}),
    "numpy._core.multiarray": frozenset({"scalar", "_reconstruct"}),
    "_codecs": frozenset({"encode"}),
    "builtins": _BUILTINS,
    "__builtin__": _BUILTINS,
    "pathlib": frozenset({"Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"}),
    "datetime": frozenset({"datetime", "timedelta", "date"}),
    "argparse": frozenset({"Namespace"}),
}
_TORCH_VALUES = frozenset(
    {"Size", "device", "dtype", "Tensor"}
    | {f"per_{of}_{kind}" for of in ("tensor", "channel") for kind in ("affine", "symmetric")}  # of quantized tensors
)


@dataclass(frozen=True, slots=True)
class PickleContent:
    """What a stream of pickles names: ``module.name`` of every global, and whether it was read to its end."""

    globals: frozenset[str]
    complete: bool

    @property
    def foreign(self) -> tuple[str, ...]:
        """Globals beyond those that tensors, containers and numbers need, sorted."""
        return tuple(sorted(name for name in self.globals if not is_data(name)))


def is_data(name: str) -> bool:
    """Whether unpickling the global can only make a tensor, a container or a number."""
    module, _, attribute = name.rpartition(".")
    if module == "torch":
        return attribute in _TORCH_VALUES or attribute.endswith("Storage") or _DTYPES.fullmatch(attribute) is not None
    return attribute in _DATA_MODULES.get(module, frozenset())


_DTYPES = re.compile(
    r"(b?float|u?int|complex|qu?int|bits)\d+(_e\dm\d\w*|x\d)*|bool|bit|half|float|double|short|int|long|c(half|float|double)"
)
"""Every number type of torch, narrow and packed ones (``float8_e4m3fn``, ``quint4x2``) included."""


def content_of(stream: IO[bytes], pickles: int = 1) -> PickleContent:
    """Walk up to ``pickles`` pickles, one behind the other; never raises for broken ones."""
    names: set[str] = set()
    try:
        for _ in range(pickles):
            _walk(stream, names)
    except (ValueError, EOFError, IndexError, UnicodeDecodeError, OverflowError):
        return PickleContent(frozenset(names), complete=False)
    return PickleContent(frozenset(names), complete=True)


def _walk(stream: IO[bytes], names: set[str]) -> None:
    strings: list[str] = []
    memo: dict[int, str] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if count > _MAX_OPCODES:
            raise ValueError("too many opcodes")
        if opcode.name in ("GLOBAL", "INST"):
            names.add(str(argument).replace(" ", "."))
        elif opcode.name == "STACK_GLOBAL":
            names.add(".".join(strings[-2:]) if len(strings) >= 2 else "unknown.global")
        elif opcode.name in ("EXT1", "EXT2", "EXT4"):
            names.add("copyreg.extension")
        elif opcode.name in _STRINGS:
            strings.append(str(argument))
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else ""
        elif opcode.name in _MEMO_PUTS:
            memo[int(str(argument))] = strings[-1] if strings else ""
        elif opcode.name in _MEMO_GETS and int(str(argument)) in memo:
            strings.append(memo[int(str(argument))])


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as a traced archive stores it: the key of its bytes, its dtype by storage class, and its layout."""

    key: str
    storage: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def stored_examples(data: bytes) -> object:
    """Unpickle ``traced_inputs.pkl`` with nothing allowed but tensors, containers and numbers.

    Raises ``pickle.UnpicklingError`` for anything else.
    """
    return _ExampleReader(io.BytesIO(data)).load()


class _ExampleReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _stored_tensor
        if module == "torch" and name.endswith("Storage"):
            return name
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch.jit._pickle" and name.startswith(("build_", "restore_type_tag")):
            return _unwrapped
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an example input")

    def persistent_load(self, pid: tuple[str, str, str, str, int]) -> tuple[str, str]:
        return (str(pid[1]), str(pid[2]))


def _stored_tensor(
    storage: tuple[str, str], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> StoredTensor:
    return StoredTensor(storage[1], storage[0], offset, tuple(size), tuple(stride))


def _unwrapped(value: object, *_: object) -> object:
    return value
