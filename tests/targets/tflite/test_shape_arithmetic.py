"""Dynamic dimensions: what is left of computed shapes, and that one file is right at several sizes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.forms.constants import fold_constants
from convertkit.targets.forms.sizes import Size, compared, equal, larger
from tests.targets.tflite.compiled import Case, compiled, numbers

HEAD = '<ir_version: 8, opset_import: ["" : 21]>'


def sized(body: str, declared: str = "float[n,4,6] x", result: str = "float[n,a,b] y") -> Case:
    stored = "<int64[1] z0 = {3}, int64[3] z1 = {0,0,-1}>" if "z0" in body else ""
    return compiled(f"{HEAD} g ({declared}) => ({result}) {stored} {{ {body} }}")


def runs_at_every_size(case: Case, *shape: int) -> None:
    case.agree(*({"x": numbers(batch, *shape, seed=batch)} for batch in (8, 1, 3, 8)))


def test_sums_and_products_of_names() -> None:
    n, t = Size.of("N"), Size.of("T")
    assert (n + t) * Size.of(2) == Size.of(2) * t + n + n
    assert str(Size.of(64) * n * t + Size.of(1)) == "1 + 64*N*T"
    assert (Size.of(64) * n * t).over(Size.of(8) * t) == Size.of(8) * n
    assert (n + Size.of(1)).over(n) is None
    assert (n - n).number == 0
    assert equal(n, Size.of(-1)) is False
    assert equal(n, Size.of(1)) is None
    assert larger(n + Size.of(2), n) == n + Size.of(2)
    assert larger(n, Size.of(1)) is None
    assert compared(n, n + Size.of(1)) is True
    assert compared(n, n) is False
    assert compared(n, Size.of(5)) is None


FLATTENED = """s = Shape(x)  zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()
    n = Gather(s, zero)  minus = Constant<value_ints=[24]>()  to = Concat<axis=0>(n, minus)  y = Reshape(x, to)"""

ROWS = [
    pytest.param(
        """t = Transpose<perm=[1,0,2]>(x)  z = Relu(t)  u = Unsqueeze(z, z0)  y = Reshape(u, z1)""",
        "float[4,n,6] y", {"TRANSPOSE": 1, "RELU": 1}, id="copied-sizes-and-a-rest",
    ),
    pytest.param(FLATTENED, "float[n,24] y", {"RESHAPE": 1}, id="reshape"),
    pytest.param(
        """s = Shape(x)  p = ReduceProd<keepdims=1>(s)  y = Reshape(x, p)""",
        "float[m] y", {"RESHAPE": 1}, id="flat",
    ),
    pytest.param(
        """t = Transpose<perm=[1,0,2]>(x)  s = Shape<start=1>(t)  four = Constant<value_ints=[4]>()
        to = Concat<axis=0>(four, s)  z = Relu(t)  y = Reshape(z, to)""",
        "float[4,n,6] y", {"TRANSPOSE": 1, "RELU": 1}, id="reshape-to-itself",
    ),
    pytest.param(
        """s = Shape(x)  w = Abs(x)  e = Expand(w, s)  y = Add(e, x)""",
        "float[n,4,6] y", {"ABS": 1, "ADD": 1}, id="expand-to-itself",
    ),
    pytest.param(
        """s = Shape<start=0,end=2>(x)  one = Constant<value_ints=[6]>()  to = Concat<axis=0>(s, one)
        k = Constant<value_floats=[1.5]>()  e = Expand(k, to)  y = Mul(x, e)""",
        "float[n,4,6] y", {"MUL": 1}, id="expand-that-broadcasts",
    ),
    pytest.param(
        """s = Shape<start=0,end=1>(x)  zero = Constant<value_ints=[0]>()  y = Slice(x, zero, s, zero)""",
        "float[n,4,6] y", {"RESHAPE": 1}, id="slice-of-all",
    ),
    pytest.param(
        """s = Shape(x)  m = Constant<value_ints=[-1,-1,-1]>()  e = Equal(s, m)
        o = Constant<value_ints=[1,1,1]>()  to = Where(e, o, s)  y = Expand(x, to)""",
        "float[n,4,6] y", {"RESHAPE": 1}, id="expand-of-torch",
    ),
    pytest.param(
        """s = Shape(x)  z = ConstantOfShape<value: tensor = int64[1] {0}>(s)  t = Cast<to=1>(z)  y = Add(t, x)""",
        "float[n,4,6] y", None, id="zeros-of-its-shape",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "result", "wanted"), ROWS)
def test_computed_shapes(body: str, result: str, wanted: dict[str, int] | None) -> None:
    case = sized(body, result=result)
    if wanted is not None:
        assert case.operators == wanted
    runs_at_every_size(case, 4, 6)


def test_sizes_of_what_is_filled_are_known() -> None:
    """``grid_sample(torch.ones_like(x), grid)``, the mask of optical flow, was refused."""
    case = compiled(f"""{HEAD} g (float[n,2,4,6] x, float[n,2,3,2] where) => (float[n,2,2,3] y) {{
        s = Shape(x)  ones = ConstantOfShape<value: tensor = float[1] {{1}}>(s)
        y = GridSample<align_corners=1>(ones, where) }}""")
    case.agree(*({"x": numbers(n, 2, 4, 6), "where": numbers(n, 2, 3, 2)} for n in (2, 1, 3)))


def test_two_free_sizes_are_not_guessed() -> None:
    case = compiled(f"""{HEAD} g (float[n,t,6] x) => (float[t,n,6] y) {{
        s = Shape<start=0,end=1>(x)  u = Shape<start=1,end=2>(x)  six = Constant<value_ints=[6]>()
        to = Concat<axis=0>(u, s, six)  y = Reshape(x, to) }}""")
    case.agree(*({"x": numbers(*sizes, 6)} for sizes in ((2, 3), (3, 2), (1, 5))))


def test_what_a_model_states_of_inner_values_is_not_believed() -> None:
    """By an exporter's wrong name for the size of an inner value, nothing would be left of it behind row n."""
    proto = parser.parse_model(f"""{HEAD} g (float[n,4] x, float[t,4] z) => (float[a,4] y) {{
        c = Concat<axis=0>(x, z)  s = Shape<start=0,end=1>(x)  far = Constant<value_ints=[9999]>()
        zero = Constant<value_ints=[0]>()  y = Slice(c, s, far, zero) }}""")
    stated = proto.graph.value_info.add()
    stated.name = "c"
    stated.type.tensor_type.elem_type = 1
    for name in ("n", "four"):
        stated.type.tensor_type.shape.dim.add().dim_param = name
    compiled(proto).agree({"x": numbers(2, 4), "z": numbers(3, 4, seed=1)})


def test_zero_states_of_the_batch_are_left_out() -> None:
    model = canonicalize(
        ir.from_proto(
            parser.parse_model(f"""{HEAD} g (float[5,n,3] x) => (float[1,n,2] h)
        <float[1,8,3] w = {{{",".join(["0.5"] * 24)}}}, float[1,8,2] r = {{{",".join(["0.5"] * 16)}}}> {{
        s = Shape<start=1,end=2>(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        to = Concat<axis=0>(one, s, two)  zero = Constant<value_float=0.0>()  z = Expand(zero, to)
        ignored, h = LSTM<hidden_size=2>(x, w, r, , , z, z) }}""")
        )
    )
    fold_constants(model)
    assert [node.op_type for node in model.graph] == ["LSTM"]
    assert not any(model.graph[0].inputs[5:7])


def test_one_row_for_every_place() -> None:
    case = compiled(f"""{HEAD} g (int64[n,7] x) => (float[n,7,2] y)
        <float[3,2] table = {{1.0,2.0,3.0,4.0,5.0,6.0}}> {{
        s = Shape(x)  k = Constant<value_int=2>()  all = Expand(k, s)  rows = Gather(table, all)
        own = Gather(table, x)  y = Add(own, rows) }}""")
    assert not {"SHAPE", "BROADCAST_TO"} & set(case.operators)
    case.agree(*({"x": np.arange(batch * 7).reshape(batch, 7) % 3} for batch in (2, 1, 5)))


def test_resize_to_computed_sizes() -> None:
    case = compiled(f"""{HEAD} g (float[n,3,4,5] x) => (float[n,3,8,10] y) {{
        s = Shape<start=0,end=2>(x)  hw = Constant<value_ints=[8,10]>()  to = Concat<axis=0>(s, hw)
        y = Resize<mode="linear">(x, , , to) }}""")
    assert case.operators["RESIZE_BILINEAR"] == 1
    case.agree(*({"x": numbers(batch, 3, 4, 5)} for batch in (2, 1, 5)))


def test_shuffled_channels_of_a_deep_network() -> None:
    """Each layer's shape is computed from the last one's, deeper than any fixed number of rounds."""
    layers = "\n".join(
        f"""s{i} = Shape(x{i})  n{i} = Gather(s{i}, zero)  c{i} = Gather(s{i}, one)  half{i} = Div(c{i}, two)
        to{i} = Concat<axis=0>(n{i}, two, half{i}, four)  back{i} = Concat<axis=0>(n{i}, c{i}, four)
        a{i} = Reshape(x{i}, to{i})  b{i} = Transpose<perm=[0,2,1,3]>(a{i})  d{i} = Reshape(b{i}, back{i})
        l{i} = Slice(d{i}, zero, two, one)  r{i} = Slice(d{i}, two, many, one)
        m{i} = Relu(r{i})  x{i + 1} = Concat<axis=1>(l{i}, m{i})"""
        for i in range(12)
    )
    case = compiled(f"""{HEAD} g (float[n,6,4] x0) => (float[n,6,4] x12) {{
        zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        four = Constant<value_ints=[4]>()  many = Constant<value_ints=[9]>()
        {layers} }}""")
    assert "DIV" not in case.operators
    case.agree(*({"x0": numbers(batch, 6, 4)} for batch in (2, 1, 5)))


def test_paddings_computed_in_floats_layer_after_layer() -> None:
    layers = "\n".join(
        f"""s{i} = Shape<start=2>(x{i})  f{i} = Cast<to=1>(s{i})  q{i} = Div(f{i}, two)  u{i} = Ceil(q{i})
        need{i} = Sub(u{i}, q{i})  all{i} = Cast<to=7>(need{i})  end{i} = Add(all{i}, one)
        pads{i} = Concat<axis=0>(none, none, end{i}, none, none, end{i})
        p{i} = Pad(x{i}, pads{i})
        x{i + 1} = MaxPool<kernel_shape=[3,3], strides=[2,2]>(p{i})"""
        for i in range(3)
    )
    case = compiled(f"""{HEAD} g (float[n,2,20,20] x0) => (float[n,2,c,d] x3) <float two = {{2.0}}> {{
        none = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()
        {layers} }}""")
    assert "SHAPE" not in case.operators
    case.agree(*({"x0": numbers(batch, 2, 20, 20)} for batch in (2, 1, 5)))


def test_a_padding_between_free_sizes_copies_nothing_first() -> None:
    case = compiled(f"""{HEAD} g (float[n,3,t] x) => (float[n,3,u] y) {{
        pads = Constant<value_ints=[0,0,2,0,0,1]>()  y = Pad(x, pads) }}""")
    assert set(case.operators) == {"PAD"}
    case.agree(*({"x": numbers(batch, 3, steps)} for batch, steps in ((2, 5), (1, 1))))
