"""Folders of images and every other kind of data, through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from convertkit.artifact import TensorSpec
from convertkit.data.feeds import load_feeds
from convertkit.errors import FeedError, UsageError
from convertkit.options.pictures import parse_images
from convertkit.recipe import ImageOptions
from tests.command_line import here

NCHW, NHWC = TensorSpec("x", (1, 3, 4, 8), "float32"), TensorSpec("x", (1, 4, 8, 3), "float32")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """16 × 8 pixels: red at the left quarter, blue elsewhere."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :4, 0] = 200
    pixels[:, 4:, 2] = 100
    Image.fromarray(pixels).save(folder / "one.png")
    return folder


def read(folder: Path, text: str, spec: TensorSpec = NCHW, **numbers: tuple[float, ...]) -> np.ndarray:
    options = parse_images(text) if text else ImageOptions()
    for name, value in numbers.items():
        options = ImageOptions(**{**{key: getattr(options, key) for key in options.__slots__}, name: value})
    return next(iter(load_feeds(folder, (spec,), images=options)))["x"]


def test_stretched_scaled_and_in_the_inputs_layout(picture: Path) -> None:
    value = read(picture, "")
    np.testing.assert_allclose(value[0, 0, :, 0], 200 / 255)
    np.testing.assert_allclose(value[0, 2, :, -1], 100 / 255)
    np.testing.assert_array_equal(read(picture, "", NHWC), value.transpose(0, 2, 3, 1))


def test_colours_the_other_way_round(picture: Path) -> None:
    np.testing.assert_array_equal(read(picture, "bgr"), read(picture, "")[:, ::-1])


def test_the_centre_is_cut_out(picture: Path) -> None:
    square = TensorSpec("x", (1, 3, 8, 8), "float32")
    assert not read(picture, "crop", square)[0, 0].any(), "the red quarter lies outside of the central square"
    assert read(picture, "stretch", square)[0, 0].any()
    half = read(picture, "crop:0.5,nearest", TensorSpec("x", (1, 3, 4, 4), "float32"))
    np.testing.assert_allclose(half[0, 2], 100 / 255)


def test_padding_keeps_the_whole_picture(picture: Path) -> None:
    value = read(picture, "pad:51,nearest", TensorSpec("x", (1, 3, 16, 16), "float32"))
    np.testing.assert_allclose(value[0, :, :4], 0.2)
    np.testing.assert_allclose(value[0, :, 12:], 0.2)
    np.testing.assert_allclose(value[0, 0, 4:12, :4], 200 / 255)


def test_mean_and_deviation_are_in_pixels(picture: Path) -> None:
    value = read(picture, "", mean=(100.0, 0.0, 50.0), std=(50.0, 1.0, 25.0))
    assert value[0, :, 0, 0].tolist() == [2.0, 0.0, -2.0]
    with pytest.raises(FeedError, match="2 means for 3 channels"):
        read(picture, "", mean=(1.0, 2.0))


def test_filters_differ(picture: Path) -> None:
    values = [read(picture, name) for name in ("nearest", "bilinear", "bicubic", "lanczos")]
    assert len({value.tobytes() for value in values}) == 4


def test_a_named_layout_wins_where_the_shape_leaves_it_open(tmp_path: Path) -> None:
    Image.new("RGB", (3, 3), (255, 0, 0)).save(tmp_path / "red.png")
    spec = TensorSpec("x", (1, 3, 3, 3), "float32")
    assert read(tmp_path, "nchw", spec)[0, 0].all()
    assert read(tmp_path, "nhwc", spec)[0, :, :, 0].all()


@pytest.mark.parametrize("text", ["shrink", "crop,pad", "crop:2", "pad:x", "bgr:1", ""])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--images"):
        parse_images(text)


def test_a_free_size_is_refused_with_the_way_out(picture: Path) -> None:
    with pytest.raises(FeedError, match="--static H=SIZE"):
        load_feeds(picture, (TensorSpec("x", ("N", 3, "H", "W"), "float32"),))


def network(path: Path, shape: list[int | str], kernel: tuple[int, ...]) -> Path:
    """A convolution, wide enough for integers everywhere, a Relu and the mean over what is left: any sizes behind."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], "mean"),
    ]
    weights = {"w": rng.normal(0, 0.5, (16, 3, *kernel)), "b": rng.normal(0, 0.5, 16)}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], 16, *[1] * len(kernel)])],
        [numpy_helper.from_array(value.astype("f4"), name) for name, value in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def data(kind: str, folder: Path) -> list[object]:
    """12 samples of 8 × 8 pixels in one form, and the flags that it takes."""
    rng = np.random.default_rng(1)
    arrays = rng.uniform(0, 1, (12, 3, 8, 8)).astype(np.float32)
    if kind == "npz":
        np.savez(folder / "data.npz", x=arrays)
        return [folder / "data.npz"]
    if kind == "npy":
        np.save(folder / "data.npy", arrays)
        return [folder / "data.npy"]
    if kind == "function":
        (folder / "own_feeds_mod.py").write_text(
            "import numpy as np\n\ndef feeds():\n    rng = np.random.default_rng(1)\n"
            "    for size in range(5, 17):\n        yield {'x': rng.uniform(0, 1, (1, 3, size, 8)).astype('f4')}\n"
        )
        return ["own_feeds_mod:feeds"]
    (folder / kind).mkdir()
    for index, array in enumerate(arrays):
        if kind == "arrays":
            np.save(folder / kind / f"{index}.npy", array)
        else:
            pixels = (array.transpose(1, 2, 0) * 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{index}.png")
    return [folder / kind, *(["--images", "crop:0.9,bgr"] if kind == "images" else [])]


@pytest.mark.parametrize("kind", ["npz", "npy", "arrays", "images", "function"])
def test_every_kind_of_data_calibrates(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shape: list[int | str] = ["N", 3, "H", 8] if kind == "function" else ["N", 3, 8, 8]
    model = network(tmp_path / "model.onnx", shape, (3, 3))
    said = here(
        "export", model, "--target", "tensorrt", "--int8", "--calib", *data(kind, tmp_path), "-o", tmp_path / "out"
    )
    assert said.code == 0, said.err
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    assert "QuantizeLinear" in {node.op_type for node in graph.node}


def test_the_normalization_of_the_input_is_the_images(tmp_path: Path) -> None:
    model = network(tmp_path / "model.onnx", [1, 3, 8, 8], (3, 3))
    flags = ["--calib", *data("images", tmp_path), "--normalization"]
    scales = []
    for index, normalization in enumerate(("x:0/255", "x:127.5/1")):
        said = here(
            "export", model, "--target", "tensorrt", "--int8", *flags, normalization, "-o", tmp_path / str(index)
        )
        assert said.code == 0, said.err
        graph = onnx.load(tmp_path / str(index) / "model.onnx").graph
        arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        scales.append(next(float(arrays[n.input[1]]) for n in graph.node if n.input[0] == "x"))
    assert scales[0] < 0.01 < 0.5 < scales[1]


@pytest.mark.parametrize("mode", ["I;16", "I"])
def test_grey_of_sixteen_bits_is_scaled_and_not_cut_off(tmp_path: Path, mode: str) -> None:
    values = np.linspace(0, 65535, 32).reshape(4, 8)
    kind = {"I;16": np.uint16, "I": np.int32}[mode]
    Image.fromarray(values.astype(kind)).save(tmp_path / ("0.png" if mode == "I;16" else "0.tif"))
    got = read(tmp_path, "")
    np.testing.assert_allclose(got[0], np.broadcast_to(values / 65535, (3, 4, 8)), atol=0.003)


@pytest.mark.parametrize("array", [np.full((4, 8), 0.5, np.float32), np.full((4, 8), 1 << 20, np.int32)])
def test_numbers_that_are_no_pixels_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    Image.fromarray(array).save(tmp_path / "0.tif")
    with pytest.raises(FeedError, match=r"beyond 16 bits, or real ones; store such data as \.npy"):
        read(tmp_path, "")


@pytest.mark.parametrize(("factor", "told"), [(1.0, True), (1 / 255, False), (2.0, False)])
def test_pixels_that_nobody_scaled_are_told(factor: float, told: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 8)).astype(np.float32) * np.float32(factor)
    warnings = load_feeds({"x": pixels}, (NCHW,)).warnings
    assert any("x holds whole numbers of 0 to 255, as pixels do" in text for text in warnings) == told
