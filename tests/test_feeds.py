"""Feeds from everything that users have, and one clear sentence for everything that does not fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.artifact import Artifact, TensorSpec
from convertkit.data.feeds import load_feeds
from convertkit.errors import FeedError
from convertkit.parity.feeds import batched
from convertkit.steps.describe import source_bytes
from tests import onnx_models

IMAGE = TensorSpec("x", ("N", 3, 4, 5), "float32")
DATA = np.random.default_rng(0).standard_normal((7, 3, 4, 5)).astype(np.float32)


def fails() -> object:
    return 1 / 0


def fails_later() -> Iterator[object]:
    yield DATA[:1]
    raise KeyError("no sample")


def yields_feeds() -> object:
    return ({"x": DATA[i : i + 1]} for i in range(3))


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", x=DATA, label=np.arange(7))
    return tmp_path / "data.npz"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_streams_batches_of_one_again_and_again(tmp_path: Path, save: object) -> None:
    save(tmp_path / "data.npz", x=DATA, label=np.arange(7))  # type: ignore[operator]
    feeds = load_feeds(str(tmp_path / "data.npz"), (IMAGE,), label=True)
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate([feed["x"] for feed in feeds]), DATA)
    assert len(feeds) == 7
    assert feeds.warnings == ()
    np.testing.assert_array_equal(np.concatenate([feed["label"] for feed in feeds]), np.arange(7))


def test_samples_are_spread_evenly_with_their_labels(npz: Path) -> None:
    feeds = load_feeds(npz, (IMAGE,), samples=3, label=True)
    np.testing.assert_array_equal(feeds.labels, [0, 2, 4])
    np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds]), DATA[[0, 2, 4]])


def test_every_kind_yields_the_same_digest(npz: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", DATA)
    folder = tmp_path / "folder"
    folder.mkdir()
    for index, sample in enumerate(DATA):
        np.save(folder / f"{index}.npy", sample)
    items = [{"x": sample[None]} for sample in DATA]
    kinds = [npz, tmp_path / "x.npy", folder, DATA, {"x": DATA}, items, iter(items), lambda: iter(items)]
    assert len({load_feeds(kind, (IMAGE,)).sha256 for kind in kinds}) == 1


def test_a_named_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_feeds_mod.py").write_text(
        "import numpy as np\ndef feeds():\n    for i in range(3):\n"
        "        yield {'x': np.full((1, 3, 4, 5), i, 'f4')}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert len(load_feeds("my_feeds_mod:feeds", (IMAGE,))) == 3


def endless() -> Iterator[object]:
    for index in itertools.count():
        yield {"x": DATA[index % 7 : index % 7 + 1]}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("source", [endless, endless()])
def test_a_stream_without_end_gives_what_was_asked_for(source: object) -> None:
    assert len(list(load_feeds(source, (IMAGE,), samples=5))) == 5


def test_fixed_batches_take_that_many_rows() -> None:
    feeds = load_feeds(DATA[:6], (TensorSpec("x", (2, 3, 4, 5), "float32"),))
    assert [feed["x"].shape for feed in feeds] == [(2, 3, 4, 5)] * 3


def test_images_are_turned_upright_and_normalised(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    exif = image.Exif()
    exif[0x0112] = 6  # stored rotated by 90 degrees
    pixels = np.zeros((8, 4, 3), np.uint8)
    pixels[:, 0] = 255
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        image.fromarray(pixels).save(tmp_path / name / "0.png", exif=exif)
    feeds = load_feeds(tmp_path, (TensorSpec("x", (1, 3, 4, 8), "float32"),), label=True)
    value = next(iter(feeds))["x"]
    assert value.shape == (1, 3, 4, 8)
    assert value[0, 0, 0].min() == 1.0  # the left column became the top row
    assert value[0, 0, 1:].max() == 0.0
    np.testing.assert_array_equal(feeds.labels, [0, 1])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"y": DATA, "z": DATA}, "holds the array 'y'; the model's inputs are 'x', labels are called 'label'"),
        ({"x": DATA, "labels": DATA[:, 0, 0, 0]}, "holds the array 'labels'; the model's inputs are 'x', labels are"),
        ({"x": DATA[0]}, r"one sample alone needs an axis in front: array\[None\]"),
        ({"x": DATA[:, :2]}, "samples of shape 1×2×4×5, the model takes N×3×4×5"),
        ({"x": DATA.transpose(0, 2, 3, 1)}, r"the data looks NHWC, store it with .transpose\(0, 3, 1, 2\)"),
        ({"x": DATA[0, 0]}, "'x' has the shape 4×5; samples of the model's input are N×3×4×5"),
        ({"x": (DATA * 9).astype(np.uint8)}, r"x is uint8, the model takes float32; store it with .astype"),
        ({"x": np.where(DATA > 2, np.nan, DATA)}, "x holds NaN or infinity"),
        ({"x": DATA[:0]}, "holds no sample"),
        ([{"z": DATA[:1]}], "the given sequence gives 'z'; the model's inputs are 'x'"),
        ("nowhere.npz", "nowhere.npz does not exist"),
        ("no_such_module_anywhere:f", "cannot be imported"),
        (3, "calibration data of type int"),
        ({"x": [[1.0, 2.0], [1.0]]}, "x makes no array"),
        ([{"x": [[1.0, 2.0], [1.0]]}], "x makes no array"),
        (fails, r"raised ZeroDivisionError: .* by zero \(test_feeds.py:\d+\)"),
        (fails_later, "raised KeyError: 'no sample'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(source: object, message: str) -> None:
    with pytest.raises(FeedError, match=message) as caught:
        load_feeds(source, (IMAGE,))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [10, 60, 130, 400, 1500])
def test_truncated_archives(npz: Path, cut: int) -> None:
    npz.write_bytes(npz.read_bytes()[:cut])
    with pytest.raises(FeedError):
        load_feeds(npz, (IMAGE,))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives(tmp_path: Path, save: Callable[..., None]) -> None:
    """Every other byte is another one in turn: what can be read still is read, all else is one sentence."""
    path, told = tmp_path / "data.npz", set()
    save(path, x=DATA[:2, :1, :1], label=np.arange(2))
    sound = path.read_bytes()
    for place in range(0, len(sound), 2):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x55]) + sound[place + 1 :])
        try:
            list(load_feeds(path, (TensorSpec("x", ("N", 1, 1, 5), "float32"),), label=True))
        except FeedError as error:
            told.add(str(error).partition(": ")[0])
    assert f"{path} is broken" in told


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "first"), [("BMP", 0), ("PNG", 0), ("TIFF", 40)])
def test_damaged_images(tmp_path: Path, kind: str, first: int) -> None:
    """From byte ``first`` on: before it stand the sizes of a TIFF, and decoding a gigabyte takes its time."""
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / f"one.{kind.lower()}"
    image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(path, kind)
    sound, refused = path.read_bytes(), 0
    for place, bit in itertools.product(range(first, len(sound)), (0x01, 0x80)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ bit]) + sound[place + 1 :])
        try:
            list(load_feeds(str(tmp_path), (IMAGE,)))
        except FeedError:
            refused += 1
    assert refused


@pytest.mark.parametrize("name", ["a.npy", "c.npy"])
@pytest.mark.parametrize("content", [b"", b"no array", b"PK\x03\x04 an archive", DATA.tobytes()])
def test_a_broken_file_of_a_folder(tmp_path: Path, name: str, content: bytes) -> None:
    np.save(tmp_path / "b.npy", DATA[0])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FeedError, match=rf"{name} holds no NumPy array"):
        list(load_feeds(str(tmp_path), (IMAGE,)))


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        (DATA * 0, "x is zero throughout"),
        (np.ones_like(DATA), "x is the same in all 7 samples"),
        (DATA[:1], "one sample only"),
        (DATA.astype(np.float64), "x is float64, the model takes float32; converted"),
    ],
)
def test_what_fits_and_is_suspicious_is_warned_about(data: np.ndarray, warning: str) -> None:
    assert any(warning in text for text in load_feeds(data, (IMAGE,)).warnings)


@pytest.mark.parametrize(
    ("labels", "message"), [(([1, 2], [1]), "label makes no array"), (([1, 2], [3, 4]), "items with 2 labels")]
)
def test_labels_that_do_not_fit(labels: tuple[list[int], ...], message: str) -> None:
    items = [{"x": DATA[:1], "label": each} for each in labels]
    assert len(load_feeds(items, (IMAGE,))) == 2
    with pytest.raises(FeedError, match=message):
        load_feeds(items, (IMAGE,), label=True)


def test_missing_label() -> None:
    with pytest.raises(FeedError, match="no array 'label'"):
        load_feeds({"x": DATA}, (IMAGE,), label=True)


def test_scalars_stay_scalars_alone_and_in_a_batch() -> None:
    position = TensorSpec("position", (), "int32")
    rows = {"x": DATA, "position": np.arange(len(DATA), dtype=np.int32)}
    feeds = list(load_feeds(rows, (IMAGE, position)))
    assert [feed["position"].shape for feed in feeds] == [()] * len(DATA)
    assert [int(feed["position"]) for feed in feeds] == list(range(len(DATA)))
    together = batched(feeds, ["x", "position"], 3)
    assert together["x"].shape[0] == 3
    assert together["position"] == 0


def test_a_model_with_weights_in_a_file_of_their_own_is_as_large_as_both(tmp_path):
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = onnx_models.model([node], {"x": [1, 64]}, {"y": [1, 64]}, [weights])
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    path = tmp_path / "m.onnx"
    source = Artifact(path, "onnx", (), (), "")
    assert source_bytes(source) == path.stat().st_size + (tmp_path / "weights").stat().st_size > 64 * 64 * 4
