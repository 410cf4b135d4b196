"""Recurrent operators and reads by coordinates whose batch is dynamic: several sizes through one file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from convertkit.errors import Unsupported
from convertkit.targets.tflite.costs.loops import MAX_STEPS
from tests.targets.tflite.compiled import compiled, numbers

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
BATCHES = (3, 1, 8, 8, 1)


def recurrent(kind: str, steps: int | str = 5, given: str = "", direction: str = "bidirectional", layout: int = 0):
    """``given``: "l" for lengths, "s" for initial states, as inputs of the model."""
    rng = np.random.default_rng(0)
    ways = 2 if direction == "bidirectional" else 1
    rows = GATES[kind] * 6
    shapes = {"w": (ways, rows, 4), "r": (ways, rows, 6), "b": (ways, 2 * rows)}
    stored = [numpy_helper.from_array((rng.standard_normal(s) / 2).astype(np.float32), n) for n, s in shapes.items()]
    state = ["n", ways, 6] if layout else [ways, "n", 6]
    values = {"x": ["n", steps, 4] if layout else [steps, "n", 4]}
    names = ["x", "w", "r", "b", "lengths" if "l" in given else ""]
    if "s" in given:
        finals = ["h", "c"] if kind == "LSTM" else ["h"]
        values |= dict.fromkeys(finals, state)
        names += finals
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in values.items()]
    if "l" in given:
        infos.append(helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, ["n"]))
    y = ["n", steps, ways, 6] if layout else [steps, ways, "n", 6]
    outputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("y", y), ("last", state))]
    options = {"layout": layout} if layout else {}
    node = helper.make_node(kind, names, ["y", "last"], hidden_size=6, direction=direction, **options)
    graph = helper.make_graph([node], "g", infos, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def feed(model: onnx.ModelProto, batch: int, seed: int) -> dict[str, np.ndarray]:
    found = {}
    for value in model.graph.input:
        shape = [dim.dim_value or batch for dim in value.type.tensor_type.shape.dim]
        if value.name == "lengths":
            found[value.name] = np.random.default_rng(seed).integers(1, 5, batch).astype(np.int32)
        else:
            found[value.name] = numbers(*shape, seed=seed)
    return found


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("steps", [5, MAX_STEPS + 3])
@pytest.mark.parametrize("given", ["", "l", "s", "ls"])
def test_one_file_for_every_batch(kind: str, steps: int, given: str) -> None:
    model = recurrent(kind, steps, given)
    compiled(model).agree(*(feed(model, batch, seed) for seed, batch in enumerate(BATCHES)))


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_one_way(kind: str, direction: str) -> None:
    model = recurrent(kind, 4, direction=direction)
    compiled(model).agree(*(feed(model, batch, seed) for seed, batch in enumerate(BATCHES)))


def test_what_is_no_number_stays_in_its_sequence() -> None:
    model = recurrent("LSTM", 4, direction="forward")
    for value in (np.nan, np.inf):
        given = feed(model, 3, 1)
        given["x"][0, 1, :] = value
        ((expected, result),) = compiled(model).both([given])
        for name, want in expected.items():
            kept = [0, 2]
            np.testing.assert_allclose(
                result[name][:, :, kept] if name == "y" else result[name][:, kept],
                want[:, :, kept] if name == "y" else want[:, kept],
                atol=1e-5,
            )


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_thousands_of_sizes_through_one_file(kind: str) -> None:
    """An earlier form of the bidirectional RNN was once seen to be wrong after one resize in 800."""
    model = recurrent(kind, given="s")
    sizes = np.random.default_rng(0).integers(1, 9, 3000)
    compiled(model).agree(*(feed(model, int(size), seed) for seed, size in enumerate(sizes)))


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("given", ["", "s", "l"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_one_file_for_every_number_of_steps(kind: str, given: str, direction: str) -> None:
    model = recurrent(kind, "t", given, direction)
    sizes = [(batch, steps) for batch, steps in zip(BATCHES, (4, 40, 1, 9, 4), strict=True)]
    compiled(model).agree(*(_of_steps(model, *size, seed) for seed, size in enumerate(sizes)))


def _of_steps(model: onnx.ModelProto, batch: int, steps: int, seed: int) -> dict[str, np.ndarray]:
    found = feed(model, batch, seed)
    found["x"] = numbers(steps, batch, 4, seed=seed)
    if "lengths" in found:
        found["lengths"] = np.random.default_rng(seed).integers(1, steps + 1, batch).astype(np.int32)
    return found


def test_free_features_are_those_of_the_weights() -> None:
    model = recurrent("GRU")
    feeds = [feed(model, batch, batch) for batch in BATCHES]
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "f"
    compiled(model).agree(*feeds)


def test_coordinates_of_every_batch() -> None:
    """A table read at rows that the batch gives, as ``cos[position]`` is exported."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[12,3,5] x, int64[n,4,2] at) => (float[n,4,5] y) { y = GatherND(x, at) }""")
    rng = np.random.default_rng(0)
    x = numbers(12, 3, 5)
    case.agree(*({"x": x, "at": rng.integers((-12, -3), (12, 3), (batch, 4, 2))} for batch in BATCHES))


def test_elements_of_every_batch() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,4,5] x, int64[n,4,3] at) => (float[n,4,3] y) { y = GatherElements<axis=2>(x, at) }""")
    rng = np.random.default_rng(0)
    case.agree(*({"x": numbers(b, 4, 5, seed=b), "at": rng.integers(-5, 5, (b, 4, 3))} for b in BATCHES))


RUN_TIME_SIZES = ((2, 3), (4, 5), (1, 1), (4, 5), (3, 2))


def of_every_size(node: str, declared: str, feeds: list[dict[str, np.ndarray]]) -> None:
    compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g ({declared}) => (float[a,b,c] y) {{ y = {node} }}""").agree(
        *feeds
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_of_every_size(axis: int) -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": numbers(n, 4, m), "at": rng.integers(-min(n, m), min(n, m), (n, 2, m))} for n, m in RUN_TIME_SIZES]
    of_every_size(f"GatherElements<axis={axis}>(x, at)", "float[n,4,m] x, int64[n,2,m] at", feeds)


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_coordinates_in_every_size(batch_dims: int) -> None:
    rng = np.random.default_rng(0)
    feeds = [
        {"x": numbers(n, m, 3, 2), "at": rng.integers(-min(n, m, 3), min(n, m, 3), (n, 2))} for n, m in RUN_TIME_SIZES
    ]
    rank = "[a,b]" if batch_dims else "[a,b,c]"
    compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,m,3,2] x, int64[n,2] at) => (float{rank} y) {{
        y = GatherND<batch_dims={batch_dims}>(x, at) }}""").agree(*feeds)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
def test_scatter_in_every_size(reduction: str) -> None:
    rng = np.random.default_rng(0)
    feeds = []
    for n, m in RUN_TIME_SIZES:
        at = np.stack([rng.permutation(n) for _ in range(4 * m)], 1).reshape(n, 4, m)[:1]
        feeds.append({"x": numbers(n, 4, m), "at": at, "u": numbers(1, 4, m, seed=1)})
    of_every_size(
        f'ScatterElements<axis=0, reduction="{reduction}">(x, at, u)',
        "float[n,4,m] x, int64[1,4,m] at, float[1,4,m] u",
        feeds,
    )
    rows = [{"x": numbers(n, 4, m), "at": np.array([[-1], [0]])[:n], "u": numbers(min(n, 2), 4, m)}
            for n, m in RUN_TIME_SIZES]  # fmt: skip
    of_every_size(
        f'ScatterND<reduction="{reduction}">(x, at, u)', "float[n,4,m] x, int64[k,1] at, float[k,4,m] u", rows
    )


@pytest.mark.parametrize("axis", [0, 2])
def test_running_sums_along_every_size(axis: int) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,4,m] x) => (float[n,4,m] y) {{
        at = Constant<value_int={axis}>() y = CumSum<exclusive=1, reverse=1>(x, at) }}""")
    case.agree(*({"x": numbers(n, 4, m)} for n, m in RUN_TIME_SIZES))


@pytest.mark.parametrize("size", ["5", "m"])
def test_transposed_convolution_beyond_its_window(size: str) -> None:
    """``ConvTranspose2d(3, stride=2, output_padding=1)``: the last row and column are the bias alone."""
    text = f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,3,4,{size}] x) => (float[n,2,10,w] y) {{
        y = ConvTranspose<strides=[2,3], output_padding=[1,2]>(x, w, b) }}"""
    model = onnx.parser.parse_model(text)
    stored = {"w": numbers(3, 2, 3, 2), "b": numbers(2)}
    model.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in stored.items())
    widths = (5,) * len(BATCHES) if size == "5" else (5, 2, 1, 7, 5)
    case = compiled(model)
    case.agree(*({"x": numbers(n, 3, 4, m, seed=n)} for n, m in zip(BATCHES, widths, strict=True)))


def test_known_sizes_beside_a_batch_stay_known() -> None:
    """Zeros behind the low frequencies, as a Fourier neural operator has them: a DFT needs its length."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 18]> g (float[n,3,6,2] x) => (float[n,3,9,2] y)
        <int64[1] three = {3}, int64[1] two = {2}, float zero = {0.0}> {
        batch = Shape<start=0, end=1>(x) sizes = Concat<axis=0>(batch, three, three, two) zeros = Expand(zero, sizes)
        whole = Concat<axis=2>(x, zeros) y = DFT<axis=2>(whole) }""")
    case.agree(*({"x": numbers(batch, 3, 6, 2, seed=batch)} for batch in BATCHES))


def test_columns_of_every_batch() -> None:
    """Columns that meet, with a border and gaps; a number of columns that only the call tells is refused."""
    text = """<ir_version: 8, opset_import: ["" : 21]> g (float[n,12,4] x) => (float[n,3,5,4] y)
        <int64[2] image = {5,4}, int64[2] block = {2,2}> {
        y = Col2Im<strides=[2,1], pads=[1,0,0,0], dilations=[2,2]>(x, image, block) }"""
    compiled(text).agree(*({"x": numbers(batch, 12, 4, seed=batch)} for batch in BATCHES))
    with pytest.raises(Unsupported, match="whose number is only known at run time") as refusal:
        compiled(text.replace("n,12,4", "n,12,m"))
    assert refusal.value.ways_out == ("--static m=SIZE", "--target onnxruntime")


def test_pixels_of_every_batch() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,8,3,4] x) => (float[n,2,6,8] y) { y = DepthToSpace<blocksize=2, mode="CRD">(x) }""")
    case.agree(*({"x": numbers(batch, 8, 3, 4, seed=batch)} for batch in BATCHES))


def test_pixels_of_images_of_every_size() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,12,h,w] x) => (float[n,3,a,b] y) { y = DepthToSpace<blocksize=2, mode="CRD">(x) }""")
    case.agree(*({"x": numbers(batch, 12, *sizes)} for batch, sizes in ((1, (3, 4)), (2, (5, 2)), (1, (1, 7)))))


def test_the_nearest_by_a_scale_that_float32_rounds() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,3,9,7] x) => (float[n,3,5,11] y) <float[4] s = {1, 1, 0.6, 1.7}> {
            y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , s) }""")
    case.agree(*({"x": numbers(batch, 3, 9, 7, seed=batch)} for batch in BATCHES))


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_places_in_images_of_every_batch(mode: str, padding: str, corners: int) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,3,8,7] x, float[n,5,6,2] at) => (float[n,3,5,6] y) {{
            y = GridSample<mode="{mode}", padding_mode="{padding}", align_corners={corners}>(x, at) }}""")
    case.agree(*({"x": numbers(b, 3, 8, 7, seed=b), "at": numbers(b, 5, 6, 2, seed=b + 9)} for b in BATCHES))


def test_places_of_maxima_of_every_batch() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,3,8,7] x) => (float[n,3,4,3] y, int64[n,3,4,3] at) {
            y, at = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,0,0]>(x) }""")
    case.agree(*({"x": numbers(batch, 3, 8, 7, seed=batch)} for batch in BATCHES))


def test_determinants_of_every_batch() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,2,3,3] x) => (float[n,2] y) { y = Det(x) }""")
    case.agree(*({"x": numbers(batch, 2, 3, 3, seed=batch)} for batch in BATCHES))


def test_angles_of_every_size() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,4,m] x) => (float[n,4,m] y) { y = Atan(x) }""")
    case.agree(*({"x": numbers(n, 4, m) * 3} for n, m in RUN_TIME_SIZES))


def test_halves_of_large_integers_of_every_size() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (int64[n,4,m] x) => (int64[n,4,m] y) <int64 two = {2}> { y = Div(x, two) }""")
    rng = np.random.default_rng(0)
    case.agree(*({"x": rng.integers(-(1 << 62), 1 << 62, (n, 4, m))} for n, m in RUN_TIME_SIZES))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("Hardmax<axis=-1>(x)", "Hardmax along an axis"),
        ("ArgMax<axis=-1, select_last_index=1>(x)", "the last of equal extremes"),
        ('Resize<mode="cubic", axes=[1,2], antialias=1>(x, , , to)', "a resized axis whose size"),
    ],
)
def test_a_free_size_is_no_number(node: str, reason: str) -> None:
    kind = "int64" if "ArgMax" in node else "float"
    with pytest.raises(Unsupported, match=reason):
        compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[1,n,n] x) => ({kind}[a,b,c] y) {{
            to = Constant<value_ints=[8,10]>() y = {node} }}""")


def test_pytorchs_half_pixel_is_the_kernels_own() -> None:
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]> g (float[n,2,4,5] x) => (float[n,2,8,3] y) {
        to = Constant<value_ints=[8,3]>()
        y = Resize<mode="linear", axes=[2,3], coordinate_transformation_mode="pytorch_half_pixel">(x, , , to) }""")
    assert case.operators["RESIZE_BILINEAR"] == 1
    case.agree({"x": numbers(2, 2, 4, 5)})


def test_channels_of_what_is_expanded_stay_known() -> None:
    """XNNPACK's depthwise convolution does not run over channels that only the runtime knows."""
    weights = ", ".join(f"{number}.5" for number in range(12))
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,3,4,4] x) => (float[n,3,3,3] y)
        <float[3,1,2,2] w = {{{weights}}}, float[1,3,1,1] k = {{1.0, 2.0, 3.0}}> {{
        sizes = Shape(x)  wide = Expand(k, sizes)  y = Conv<group=3>(wide, w) }}""")
    case.agree(*({"x": numbers(batch, 3, 4, 4)} for batch in BATCHES))


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_products_of_what_is_quantized_on_the_fly(op: str) -> None:
    """As quantize_dynamic of ONNX Runtime writes them: the zero point comes from the numbers."""
    rng = np.random.default_rng(0)
    shape, sizes = ((700, 3), ["n", 5, 700]) if op == "MatMulInteger" else ((3, 2, 3, 3), ["n", 2, 6, 6])
    stored = [numpy_helper.from_array(rng.integers(0, 256, shape).astype(np.uint8), "w"),
              numpy_helper.from_array(np.uint8(117), "z")]  # fmt: skip
    how = {} if op == "MatMulInteger" else {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "p"]),
        helper.make_node(op, ["q", "w", "p", "z"], ["y"], **how),
    ]
    infos = [helper.make_tensor_value_info("x", 1, sizes), helper.make_tensor_value_info("y", 6, [None] * len(sizes))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled(model).agree(*({"x": numbers(batch, *sizes[1:], seed=batch)} for batch in BATCHES))


def test_short_time_fourier_transforms_of_any_batch() -> None:
    numbers_of = {"step": np.array(4), "window": np.hanning(8).astype(np.float32), "length": np.array(8)}
    stored = [numpy_helper.from_array(value, name) for name, value in numbers_of.items()]
    info = helper.make_tensor_value_info("x", 1, ["n", 24, 1])
    out = helper.make_tensor_value_info("y", 1, ["n", 5, 5, 2])
    node = helper.make_node("STFT", ["x", *numbers_of], ["y"])
    graph = helper.make_graph([node], "g", [info], [out], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled(model).agree(*({"x": numbers(batch, 24, 1, seed=seed)} for seed, batch in enumerate(BATCHES)))


def test_channels_of_a_shape_of_another_stay_known() -> None:
    weights = ", ".join(f"{number}.5" for number in range(6))
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 21]> g (float[n,3,4] x) => (float[n,3,3] y)
        <float[3,1,2] w = {{{weights}}}, float[1,1,1] k = {{2.0}}> {{
        sizes = Shape(x)  wide = Expand(k, sizes)  y = Conv<group=3>(wide, w) }}""")
    case.agree(*({"x": numbers(batch, 3, 4)} for batch in BATCHES))


def test_channels_of_a_shape_in_another_layout_stay_known() -> None:
    """Ones like a feature map, moved by a flow to see what of it comes from outside (PWC-Net)."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 20]>
        g (float[n,3,4,6] x, float[n,5,2,2] at) => (float[n,3,5,2] y)
        <float[3,3,1,1] w = {1.,2.,3.,-1.,0.5,2.,1.,1.,-2.}, float one = {1.0}> {
        f = Conv(x, w)  sizes = Shape(f)  ones = Expand(one, sizes)  a = GridSample<align_corners=1>(f, at)
        m = GridSample<align_corners=1>(ones, at)  y = Mul(a, m) }""")
    case.agree(
        *({"x": numbers(batch, 3, 4, 6, seed=batch), "at": numbers(batch, 5, 2, 2, seed=batch)} for batch in BATCHES)
    )


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("heads", [2, 4])
def test_attention_of_every_batch_and_length(causal: int, heads: int) -> None:
    """Operators that are written out ask for sizes, which are known then."""
    case = compiled(f"""<ir_version: 10, opset_import: ["" : 23]>
        g (float[n,t,16] q, float[n,t,{32 // heads}] k, float[n,t,{32 // heads}] v) => (float[n,t,a] y) {{
        y = Attention<q_num_heads={heads}, kv_num_heads=2, is_causal={causal}>(q, k, v) }}""")
    sizes = ((2, 5), (1, 3), (4, 1), (2, 9))
    case.agree(*(
        {name: numbers(n, t, 16 if name == "q" else 32 // heads, seed=place) for place, name in enumerate("qkv")}
        for n, t in sizes
    ))  # fmt: skip


@pytest.mark.parametrize(("axis", "how"), [(1, "inverse=1"), (-2, "onesided=0"), (2, "inverse=0")])
def test_transforms_of_every_batch(axis: int, how: str) -> None:
    case = compiled(f"""<ir_version: 8, opset_import: ["" : 20]> g (float[n,6,4,2] x) => (float[a,b,c,d] y) {{
        at = Constant<value_int={axis}>() y = DFT<{how}>(x, , at) }}""")
    case.agree(*({"x": numbers(batch, 6, 4, 2, seed=batch)} for batch in BATCHES))


def test_a_cut_of_six_axes() -> None:
    """Above five axes a cut goes through three, of which the batch is a part."""
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[n,2,3,4,3,2] x) => (float[n,2,1,4,2,2] y) {
        begin = Constant <value_ints: ints = [1, 0]> ()
        end = Constant <value_ints: ints = [2, 2]> ()
        axes = Constant <value_ints: ints = [2, 4]> ()
        y = Slice (x, begin, end, axes)
    }"""
    feeds = ({"x": numbers(batch, 2, 3, 4, 3, 2, seed=seed)} for seed, batch in enumerate(BATCHES))
    compiled(onnx.parser.parse_model(text)).agree(*feeds)
