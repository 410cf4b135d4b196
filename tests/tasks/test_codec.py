"""Everything that a result may hold comes back as it was, and nothing else is let in."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from convertkit.artifact import Artifact, Quantization, TensorSpec
from convertkit.tasks import codec, entries


class Colour(Enum):
    RED = "r"
    GREEN = 2


@dataclass(frozen=True, slots=True)
class Leaf:
    number: float
    colour: Colour


@dataclass(frozen=True, slots=True)
class Other:
    number: float
    colour: Colour


@dataclass(frozen=True, slots=True)
class Root:
    anything: object
    leaves: Mapping[str, "Leaf | Other"] = field(default_factory=dict)
    doubled: int = field(init=False, default=0)


@dataclass(frozen=True, slots=True)
class Stranger:
    number: int


def there_and_back(value, kind=Root):
    said, arrays = codec.encoded(value, kind, lambda path: ["at", str(path)])
    file = io.BytesIO()
    entries._write_arrays(file, arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        return codec.decoded(json.loads(json.dumps(said, allow_nan=False)), read, kind, lambda said: Path(said[1]))


def same(left, right):
    """Equal in value and in class, with NaN equal to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        equal = left.dtype == right.dtype and left.shape == right.shape
        return equal and (
            left.tolist() == right.tolist() if left.dtype.kind in "OT" else left.tobytes() == right.tobytes()
        )
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, Root):
        return same(left.anything, right.anything) and same(left.leaves, right.leaves)
    return left == right


DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.unicode_string_dtypes(max_len=5),
    hnp.byte_string_dtypes(max_len=5),
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.sampled_from(Colour),
    st.builds(Leaf, st.floats(allow_nan=False), st.sampled_from(Colour)), st.just(Path("a/b")), st.just(Path("/c")),
)  # fmt: skip
NAMES = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.tuples(st.text(), st.integers()))
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(NAMES, inner, max_size=3),
        st.dictionaries(st.text(), inner, max_size=3).map(MappingProxyType),
        st.frozensets(NAMES, max_size=3),
        st.sets(st.text(), max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_values_come_back(value):
    root = Root(value, {"a": Leaf(1.5, Colour.RED), "b": Other(-0.0, Colour.GREEN)})
    assert same(there_and_back(root), root)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "float4_e2m1fn"])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_dtypes_that_numpy_does_not_have_come_back(name, shape):
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = (np.arange(np.prod(shape), dtype=np.float32) % 5).reshape(shape).astype(dtype)
    assert same(there_and_back(Root(array)).anything, array)
    again = there_and_back(Root(array)).anything
    again[...] = 1  # and can be written, as others


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", "ß"], ["", "long" * 9]], object),
        np.array(["a", "b" * 99], np.dtypes.StringDType()),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::-2],
        np.zeros(2, [("x", "<i4"), ("y", "f8", 2)]),
        np.float32(1.1),
        np.int8(-3),
        np.str_("word"),
        ml_dtypes.bfloat16(1.5),
        np.float32("nan"),
    ],
    ids=str,
)
def test_unusual_arrays_and_scalars_come_back(array):
    assert same(there_and_back(Root(array)).anything, array)


def test_an_artifact_comes_back():
    spec = TensorSpec("x", ("N", 3), "float32", (0, 1), Quantization(0.1, 3), (0.0, float("inf")))
    artifact = Artifact(Path("/a/model.onnx"), "onnx", (spec,), (), "ab", initial_state=Path("/a/state.npz"))
    assert there_and_back(artifact, Artifact) == artifact
    assert there_and_back((artifact, None), tuple[Artifact, "Leaf | None"]) == (artifact, None)


@pytest.mark.parametrize(
    "value",
    [Stranger(1), print, object(), np.array([object()]), np.zeros(1, [("x", object)]), 1j, {1: Stranger(2)}, Root],
    ids=["a class", "a function", "an object", "an array of objects", "a record", "complex", "a key", "a type"],
)
def test_what_has_no_place_in_a_store_is_refused(value):
    with pytest.raises(TypeError):
        there_and_back(Root(value))


def test_only_classes_of_the_result_are_read():
    said, arrays = codec.encoded(Stranger(1), Stranger, str)
    with pytest.raises(LookupError):
        codec.decoded(said, arrays, Root, Path)
    with pytest.raises(LookupError):
        codec.decoded({"$os.system": "true"}, {}, Root, Path)


def test_what_only_type_checkers_import_is_left_out():
    @dataclass(frozen=True, slots=True)
    class Typed:
        hidden: "Callable[[], NotThere]"  # noqa: F821
        leaf: "Leaf"

    assert {kind.__name__ for kind in codec.classes(Typed).values()} == {"Typed", "Leaf", "Colour"}


def test_paths_of_a_result_are_found():
    value = Root({"a": (Path("/x"), [Path("/y")])}, {}), {Path("/z"): None}, frozenset({Path("/w")})
    assert sorted(map(str, codec.paths_in(value))) == ["/w", "/x", "/y", "/z"]
    assert not list(codec.paths_in(Any))
