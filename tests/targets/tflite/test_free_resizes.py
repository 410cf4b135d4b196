"""Pictures, lines and volumes resized where sizes are only known at run time."""

from __future__ import annotations

import pytest

from convertkit.errors import Unsupported
from tests.targets.tflite.compiled import compiled, numbers

IMAGE_SIZES = (((4, 5), (8, 10)), ((3, 7), (5, 13)), ((12, 11), (6, 4)), ((1, 2), (41, 82)))


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ('mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"', "GATHER"),
        ('mode="linear"', "RESIZE_BILINEAR"),
        ('mode="linear", coordinate_transformation_mode="align_corners"', "RESIZE_BILINEAR"),
    ],
)
def test_images_resized_to_the_size_of_another(how: str, code: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,2,h,w] x, float[n,1,a,b] other) => (float[n,2,a,b] y) {{
        own = Shape<start=0, end=2>(x)  hw = Shape<start=2>(other)  to = Concat<axis=0>(own, hw)
        y = Resize<{how}>(x, , , to) }}""")
    assert case.operators[code] > 0
    case.agree(*({"x": numbers(2, 2, *old), "other": numbers(2, 1, *new)} for old, new in IMAGE_SIZES))


def test_images_resized_to_a_computed_size_with_an_empty_region() -> None:
    """As tf2onnx writes ``tf.image.resize(x, 2 * tf.shape(x)[1:3])``."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1,2,h,w] x) => (float[1,2,a,b] y) <float[0] none = {}, int64[2] two = {2, 2}> {
        own = Shape<start=0, end=2>(x)  hw = Shape<start=2>(x)  twice = Mul(hw, two)
        to = Concat<axis=0>(own, twice)  y = Resize<mode="linear">(x, none, none, to) }""")
    case.agree(*({"x": numbers(1, 2, *sizes)} for sizes, _ in IMAGE_SIZES))


@pytest.mark.parametrize(
    "how",
    [
        'mode="linear", coordinate_transformation_mode="pytorch_half_pixel"',
        'mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="ceil"',
    ],
)
def test_images_of_any_batch_resized_to_the_size_that_they_have(how: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 18]> g (float[n,2,4,5] x) => (float[n,2,4,5] y)
        <int64[2] hw = {{4, 5}}> {{
        own = Shape<start=0, end=2>(x)  to = Concat<axis=0>(own, hw)  y = Resize<{how}>(x, , , to) }}""")
    case.agree(*({"x": numbers(batch, 2, 4, 5)} for batch in (1, 3)))


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        *(("nearest", where) for where in ("half_pixel", "asymmetric")),
        *(("linear", where) for where in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")),
    ],
)
def test_images_of_every_size_times_a_number(mode: str, where: str) -> None:
    rounding = "floor" if where == "asymmetric" else "round_prefer_floor"
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,h,w] x) => (float[n,2,a,b] y)
        <float[4] by = {{1.0, 1.0, 2.0, 3.0}}> {{
        y = Resize<mode="{mode}", coordinate_transformation_mode="{where}", nearest_mode="{rounding}">(x, , by) }}""")
    case.agree(*({"x": numbers(2, 2, *sizes)} for sizes, _ in IMAGE_SIZES))


@pytest.mark.parametrize("where", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric"])
@pytest.mark.parametrize("how", ["", "antialias=1, ", "cubic_coeff_a=-0.5, "])
def test_cubic_images_of_every_size_times_a_number(where: str, how: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,c,h,w] x) => (float[n,c,a,b] y)
        <float[4] by = {{1.0, 1.0, 4.0, 3.0}}> {{
        y = Resize<{how}mode="cubic", coordinate_transformation_mode="{where}">(x, , by) }}""")
    case.agree(*({"x": numbers(2, 2 + channels, *sizes)} for channels, (sizes, _) in enumerate(IMAGE_SIZES)))


@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_interpolated_at_every_size(mode: str, where: str) -> None:
    """To the size of another, which may be one element, and by a factor that is not whole."""
    how = f'mode="{mode}", coordinate_transformation_mode="{where}", cubic_coeff_a=-0.5'
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,h,w] x, float[n,1,a,b] other)
        => (float[n,2,a,b] y, float[n,2,c,d] z) <float[4] by = {{1.0, 1.0, 2.4, 0.33}}> {{
        own = Shape<start=0, end=2>(x)  hw = Shape<start=2>(other)  to = Concat<axis=0>(own, hw)
        y = Resize<{how}>(x, , , to)  z = Resize<{how}>(x, , by) }}""")
    sizes = [*(pair for pair in IMAGE_SIZES if min(pair[0]) > 2), ((9, 9), (1, 1)), ((37, 50), (50, 37))]
    case.agree(*({"x": numbers(2, 2, *old), "other": numbers(2, 1, *new)} for old, new in sizes))


def test_a_fixed_table_of_positions_fitted_to_a_picture() -> None:
    """As vision transformers do; the size is one that does not follow from a shape by a polynomial."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[n,3,h,w] x, float[1,2,4,4] table)
        => (float[1,2,a,b] y) <int64[1] two = {2}, int64[2] own = {1, 2}> {
        hw = Shape<start=2>(x)  half = Div(hw, two)  to = Concat<axis=0>(own, half)
        y = Resize<mode="cubic">(table, , , to) }""")
    case.agree(*({"x": numbers(1, 3, *sizes), "table": numbers(1, 2, 4, 4)} for sizes in ((8, 8), (9, 15), (3, 2))))


@pytest.mark.parametrize("by", ["0.7, 1.5", "2.4, 0.33", "2, 1.3"])
def test_nearest_elements_by_a_factor_of_every_size(by: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,h,w] x) => (float[n,2,a,b] y)
        <float[4] by = {{1.0, 1.0, {by}}}> {{
        y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , by) }}""")
    case.agree(*({"x": numbers(2, 2, *sizes)} for sizes in ((4, 5), (12, 11), (37, 50), (100, 4), (64, 96))))


@pytest.mark.parametrize("axes", [("h", "a"), ("h,w,4", "a,b,5")])
def test_lines_and_volumes_interpolated_at_every_size(axes: tuple[str, str]) -> None:
    old, new = axes
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,{old}] x, float[n,1,{new}] other)
        => (float[n,2,{new}] y) {{
        own = Shape<start=0, end=2>(x)  size = Shape<start=2>(other)  to = Concat<axis=0>(own, size)
        y = Resize<mode="linear">(x, , , to) }}""")
    one = old == "h"
    case.agree(*(
        {"x": numbers(2, 2, *before[: 1 if one else 2], *(() if one else (4,))),
         "other": numbers(2, 1, *after[: 1 if one else 2], *(() if one else (5,)))}
        for before, after in IMAGE_SIZES
    ))  # fmt: skip


@pytest.mark.parametrize("where", ["pytorch_half_pixel", "half_pixel"])
@pytest.mark.parametrize("to", ["1, 1", "3, 1"])
def test_cubic_images_that_shrink_to_one_element(where: str, to: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[2,2,9,9] x) => (float[2,2,a,b] y)
        <int64[4] to = {{2, 2, {to}}}> {{
        y = Resize<mode="cubic", coordinate_transformation_mode="{where}">(x, , , to) }}""")
    case.agree({"x": numbers(2, 2, 9, 9)})


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ('Resize<mode="nearest", coordinate_transformation_mode="align_corners">(x, , two)', "exact is asymmetric"),
        ('Resize<mode="nearest", nearest_mode="round_prefer_floor">(x, , by)', "exact is asymmetric"),
        ('Resize<mode="cubic", exclude_outside=1>(x, , two)', "half_pixel and exclude_outside"),
        ('Resize<mode="linear", antialias=1>(x, , by)', "half_pixel and antialias"),
        (
            'Resize<mode="linear", coordinate_transformation_mode="half_pixel_symmetric">(x, , by)',
            "with half_pixel_sym",
        ),
    ],
)
def test_images_of_every_size_refused(node: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,h,w] x) => (float[n,2,a,b] y)
            <float[4] by = {{1.0, 1.0, 1.5, 1.5}}, float[4] two = {{1.0, 1.0, 2.0, 2.0}}> {{ y = {node} }}""")


@pytest.mark.parametrize("where", ["half_pixel", "asymmetric", "align_corners"])
def test_images_of_every_size_resized_to_one(where: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[1,2,h,w] x) => (float[1,2,8,10] y) {{
        to = Constant<value_ints=[8,10]>()
        y = Resize<mode="linear", axes=[2,3], coordinate_transformation_mode="{where}">(x, , , to) }}""")
    case.agree(*({"x": numbers(1, 2, *sizes)} for sizes in ((4, 5), (3, 7), (12, 11))))
