"""Images read at computed places, of sizes that are only known at run time."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.errors import Unsupported
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 8, opset_import: ["" : 20]> g '
AS_IS = Options(input_layout="nchw")
GRIDS = {"all": ("n,3,h,w", "n,a,b,2"), "image": ("2,3,h,w", "2,5,4,2"), "places": ("n,3,6,8", "n,a,b,2"),
         "width": ("n,3,6,w", "n,5,b,2"), "volume": ("n,3,d,h,w", "n,a,b,c,3")}  # fmt: skip
SIZES = [
    {"n": 1, "d": 2, "h": 5, "w": 7, "a": 3, "b": 6, "c": 2},
    {"n": 2, "d": 3, "h": 6, "w": 8, "a": 7, "b": 1, "c": 4},
    {"n": 3, "d": 1, "h": 1, "w": 4, "a": 1, "b": 3, "c": 1},
]


def shaped(letters: str, sizes: dict[str, int]) -> list[int]:
    return [int(each) if each.isdigit() else sizes[each] for each in letters.split(",")]


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("which", [which for which in GRIDS if which != "volume"])
def test_grids_of_every_size(which: str, mode: str, padding: str, corners: int):
    """As descriptors of key points are read from pictures of any size."""
    sampled(which, mode, padding, corners)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volumes_of_every_size(mode: str):
    """ONNX has no cubic sampling of these."""
    sampled("volume", mode, "zeros", 0)


def sampled(which: str, mode: str, padding: str, corners: int) -> None:
    image, grid = GRIDS[which]
    made = ",".join("pqrst"[: image.count(",") + 1])
    case = compiled(
        f"""{HEAD} (float[{image}] x, float[{grid}] at) => (float[{made}] y) {{
            y = GridSample<mode="{mode}", padding_mode="{padding}", align_corners={corners}>(x, at) }}""",
        AS_IS,
    )
    case.agree(*(
        {"x": numbers(*shaped(image, sizes)), "at": 1.2 * numbers(*shaped(grid, sizes), seed=1)} for sizes in SIZES
    ))  # fmt: skip


@pytest.mark.parametrize("pixels", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("which", [("n,4,h,w", "k"), ("n,4,8,9", "k"), ("2,4,h,w", "5")])
def test_boxes_of_every_number_and_size(which: tuple[str, str], mode: str, pixels: str):
    image, boxes = which
    case = compiled(
        f"""{HEAD} (float[{image}] x, float[{boxes},4] r, int64[{boxes}] i) => (float[{boxes},4,3,2] y) {{
            y = RoiAlign<mode="{mode}", coordinate_transformation_mode="{pixels}", output_height=3, output_width=2,
            sampling_ratio={1 if mode == "max" else 2}, spatial_scale=0.5>(x, r, i) }}""",
        AS_IS,
    )
    feeds = []
    for n, h, w, k in ((1, 8, 9, 1), (2, 6, 7, 5), (3, 12, 5, 2)):
        rng = np.random.default_rng(k)
        shape, count = shaped(image, {"n": n, "h": h, "w": w}), 5 if boxes == "5" else k
        begin = rng.uniform(-3, 16, (count, 2))
        corners = np.concatenate([begin, begin + rng.uniform(0.1, 9, (count, 2))], 1).astype(np.float32)
        feeds.append({"x": numbers(*shape), "r": corners, "i": rng.integers(0, shape[0], count)})
    case.agree(*feeds)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_deformable_convolution_of_any_batch(groups: int):
    weights = ", ".join(map(str, numbers(4, 4 // groups, 3, 3).ravel()))
    case = compiled(
        f"""{HEAD} (float[n,4,6,5] x, float[n,36,4,3] o, float[n,18,4,3] m) => (float[n,4,4,3] y)
            <float[4,{4 // groups},3,3] w = {{{weights}}}, float[4] c = {{1, 2, 3, 4}}> {{
            y = DeformConv<offset_group=2, group={groups}>(x, w, o, c, m) }}""",
        AS_IS,
    )
    case.agree(*(
        {"x": numbers(n, 4, 6, 5), "o": numbers(n, 36, 4, 3, seed=1), "m": numbers(n, 18, 4, 3, seed=2)} for n in (1, 3)
    ))  # fmt: skip


@pytest.mark.parametrize("node", ["GridSample(x, at)", "RoiAlign<sampling_ratio=2>(x, boxes, i)"])
def test_channels_need_a_number(node: str):
    with pytest.raises(Unsupported, match="channels whose number is only known at run time"):
        compiled(
            f"""{HEAD} (float[1,c,6,6] x, float[1,3,3,2] at, float[2,4] boxes, int64[2] i) => (float[p,q,r,s] y) {{
            y = {node} }}"""
        )
