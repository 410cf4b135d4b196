"""What is looked at before torch sees a file: each wall stands by itself, whatever torch's own readers refuse."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from pathlib import Path

import pytest

from convertkit.converters.pytorch.read import exported, safety, sniff
from convertkit.converters.pytorch.read.pickles import is_data, stored_examples
from convertkit.converters.pytorch.read.safety import check
from convertkit.converters.pytorch.read.sniff import Found, examine
from convertkit.errors import ConvertKitError, SourceError, Untrusted

WEIGHTS = b"\x80\x02}."
"""The pickle of an empty dict: no weights, and no code either."""
SYSTEM = b"\x80\x02cos\nsystem\n."
"""A pickle that names os.system and does not call it."""


def _archive(folder: Path, entries: dict[str, bytes], compressed: bool = False) -> Path:
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def _checked(path: Path) -> Found:
    found = examine(path)
    assert found is not None
    check(path, found, trust_pickle=False)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch.FloatStorage", "torch.bfloat16"),
        *("torch.Size", "numpy.dtype", "numpy._core.multiarray.scalar", "_codecs.encode", "builtins.set"),
    ],
)
def test_what_weights_need_is_data(name: str) -> None:
    assert is_data(name)


@pytest.mark.parametrize(
    "name",
    [
        *("builtins.eval", "builtins.getattr", "__builtin__.exec", "os.system", "posix.system", "subprocess.Popen"),
        *("torch.load", "torch.os.system", "torch.hub.load", "torch.nn.Linear", "torch.storage._load_from_bytes"),
        *("torch._utils._import_dotted_name", "numpy.load", "_codecs.decode", "collections.namedtuple", "eval", ""),
    ],
)
def test_what_runs_code_or_reads_files_is_none(name: str) -> None:
    assert not is_data(name)


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(SYSTEM, id="global"),
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", id="from strings"),
        pytest.param(b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.", id="from memory"),
        pytest.param(
            b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x8c\x0bcollections\x8c\x0bOrderedDicth\x00h\x01\x93.",
            id="from memory behind honest names",
        ),
        pytest.param(
            b"\x80\x02X\x02\x00\x00\x00osq\x00X\x06\x00\x00\x00systemq\x01"
            b"X\x0b\x00\x00\x00collectionsX\x0b\x00\x00\x00OrderedDicth\x00h\x01\x93.",
            id="put and got",
        ),
        pytest.param(b"\x80\x02(ios\nsystem\n.", id="instance"),
        pytest.param(b"\x80\x02\x82\x01.", id="registry"),
        pytest.param(b"\x80\x02\x93.", id="nothing"),
    ],
)
def test_a_pickle_that_names_a_function_is_refused(tmp_path: Path, pickled: bytes) -> None:
    with pytest.raises(Untrusted, match="runs code when it is loaded"):
        _checked(_archive(tmp_path, {"m/data.pkl": pickled, "m/version": b"3\n"}))


def test_plain_weights_pass(tmp_path: Path) -> None:
    assert _checked(_archive(tmp_path, {"m/data.pkl": WEIGHTS, "m/version": b"3\n"})) == Found("state-dict")


@pytest.mark.parametrize("entry", ["data.pkl", "constants.pkl", "bytecode.pkl", "traced_inputs.pkl", "attributes.pkl"])
def test_no_pickle_of_an_archive_names_a_function(tmp_path: Path, entry: str) -> None:
    script = {"m/code/__torch__.py": b"", "m/data.pkl": WEIGHTS, "m/constants.pkl": WEIGHTS}
    assert _checked(_archive(tmp_path, script)) == Found("torchscript")
    with pytest.raises(Untrusted, match=r"names os\.system, which no TorchScript needs"):
        _checked(_archive(tmp_path, {**script, f"m/{entry}": SYSTEM}))


def test_examples_are_read_without_any_function() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"os\.system is not part"):
        stored_examples(SYSTEM)
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.load is not part"):
        stored_examples(b"\x80\x02ctorch\nload\n.")


@pytest.mark.parametrize("entry", ["../x", "m/../../x", "/tmp/x", "C:/x", "m\\..\\..\\x", "..\\x"])
def test_no_entry_lies_outside(tmp_path: Path, entry: str) -> None:
    with pytest.raises(SourceError, match="points outside the archive"):
        _checked(_archive(tmp_path, {"m/data.pkl": WEIGHTS, entry: b""}))


def test_no_entry_is_there_twice(tmp_path: Path) -> None:
    path = _archive(tmp_path, {"m/data.pkl": WEIGHTS})
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("m/data.pkl", WEIGHTS)
    with pytest.raises(SourceError, match="is there twice"):
        _checked(path)


@pytest.mark.parametrize(("size", "refused"), [(60 << 20, False), (80 << 20, True)])
def test_an_archive_that_unpacks_to_hundreds_of_times_its_size_is_a_bomb(
    tmp_path: Path, size: int, refused: bool
) -> None:
    path = _archive(tmp_path, {"m/data.pkl": WEIGHTS, "m/data/0": bytes(size)}, compressed=True)
    if refused:
        with pytest.raises(SourceError, match="a zip bomb"):
            _checked(path)
    else:
        assert _checked(path) == Found("state-dict")


def test_an_archive_has_so_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "_MAX_ENTRIES", 3)
    with pytest.raises(SourceError, match="has 4 entries, more than any model"):
        _checked(_archive(tmp_path, {"m/data.pkl": WEIGHTS, "m/1": b"", "m/2": b"", "m/3": b""}))


def test_a_pickle_of_absurd_size_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniff, "_MAX_PICKLE_BYTES", 10)
    with pytest.raises(Untrusted, match="absurd size"):
        _checked(_archive(tmp_path, {"m/data.pkl": pickle.dumps({"a": 1, "b": 2}, 2)}))


def test_a_program_of_absurd_size_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "_MAX_JSON_BYTES", 10)
    with pytest.raises(SourceError, match="more than any program"):
        _checked(_program(tmp_path, {"nodes": [1, 2, 3, 4]}))


def _program(folder: Path, content: object) -> Path:
    return _archive(folder, {"m/archive_format": b"pt2", "m/models/model.json": json.dumps(content).encode()})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"sizes": [{"expr_str": "print(1)"}]}, id="call"),
        pytest.param({"expr_str": "s0.__class__"}, id="attribute"),
        pytest.param({"expr_str": "s0[0]"}, id="no arithmetic"),
        pytest.param({"expr_str": "Max(s0, [s1])"}, id="list"),
        pytest.param({"range_constraints": {"print(1)": {"min_val": 1}}}, id="range"),
        pytest.param({"nodes": [{"target": "torch.os.system"}]}, id="torch's own imports"),
        pytest.param({"nodes": [{"target": "os.system"}]}, id="another module"),
        pytest.param({"target": "torch.ops.aten.add.Tensor.__class__.mro"}, id="behind an operator"),
        pytest.param({"target": "torch.ops.__class__.mro"}, id="of the operators"),
        pytest.param({"target": "_operator.attrgetter"}, id="any attribute"),
    ],
)
def test_texts_that_torch_would_evaluate_are_arithmetic_or_operators(tmp_path: Path, content: object) -> None:
    with pytest.raises(ConvertKitError, match="hostile"):
        _checked(_program(tmp_path, content))


def test_texts_of_honest_programs_pass(tmp_path: Path) -> None:
    sizes = [{"expr_str": text} for text in ("2*s0", "Max(1, s0 - 3)", "FloorDiv(s0, 2)", "Eq(Mod(s0, 2), 0)")]
    calls = ["torch.ops.aten.add.Tensor", "torch.ops.aten.__and__.Tensor", "_operator.mul", "torch.sym_max", "relu"]
    content = {"sizes": sizes, "nodes": [{"target": each} for each in calls], "range_constraints": {"s0": {}}}
    assert _checked(_program(tmp_path, content)) == Found("pt2")


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_pickle_that_ends_early_is_damaged(tmp_path: Path, share: float) -> None:
    whole = pickle.dumps({"a": [1, 2, 3], "b": "text" * 20}, 2)
    with pytest.raises(SourceError, match="truncated or damaged"):
        _checked(_archive(tmp_path, {"m/data.pkl": whole[: int(len(whole) * share)]}))
