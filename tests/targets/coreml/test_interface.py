"""What a package says of its inputs and outputs: sizes, images and labels, each held against the model."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import convertkit
from convertkit.artifact import TensorSpec
from convertkit.errors import FeedError, ParityError, Unsupported, UsageError
from convertkit.stage import FLOAT32
from convertkit.targets.coreml.golden import Golden
from convertkit.targets.coreml.interface import RAISED, check_batch, settled
from convertkit.targets.coreml.options import TARGETS, Choices, image_of, read_labels, sizes_of
from convertkit.targets.coreml.package.program import read_package
from convertkit.targets.coreml.runner import CoreMLRunner
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import Compiled, compile_text, numbers

SEQUENCE = "test (float[1,T,6] x) => (float[1,T,4] y) { m = MatMul(x, w) y = Relu(m) }"
PICTURE = "c = Conv<pads=[1,1,1,1]>({}, w) a = GlobalAveragePool(c) f = Flatten(a) p = Softmax(f)"
KERNEL = {"w": numbers(5, 3, 3, 3)}
LABELS = ("ant", "bee", "cat", "dog", "eel")


def choices(**told: tuple[str, ...]) -> Choices:
    return replace(Choices(TARGETS["iOS17"]), **told)


@pytest.mark.parametrize(
    ("text", "allowed", "refused", "states"),
    [
        ("T=8,4,16", (8, 4, 16), 5, "states (1, 8, 6), (1, 4, 6), (1, 16, 6)"),
        ("T=2..9", (2, 5, 9), 10, "states (1, 2..9, 6)"),
    ],
)
def test_every_stated_size_runs_and_no_other(text, allowed, refused, states, worker: Worker, tmp_path: Path):
    made = compile_text(worker, SEQUENCE, tmp_path / "c", choices(shapes=(text,)), w=numbers(6, 4))
    (feature,) = made.program.inputs
    assert feature.shape == (1, allowed[0], 6)
    assert feature.shapes == (tuple((1, size, 6) for size in allowed) if "," in text else ())
    assert feature.ranges == (() if "," in text else ((1, 1), (2, 9), (6, 6)))
    for size in allowed:
        made.agree({"x": numbers(1, size, 6, seed=size)})
    with CoreMLRunner(made.artifact) as runner, pytest.raises(FeedError) as refusal:
        runner.run({"x": numbers(1, refused, 6)})
    assert states in str(refusal.value)


def test_stated_sizes_of_integers_are_held_against_the_model(worker: Worker, tmp_path: Path):
    """Which takes int64 where the package takes int32."""
    text = "test (int64[1,T] x) => (float[1,T,4] y) { y = Gather(w, x) }"
    made = compile_text(worker, text, tmp_path / "c", choices(shapes=("T=2..5",)), w=numbers(3, 4))
    assert {len(vector["inputs"]["x"]["shape"]) for vector in vectors_of(made)} == {2}
    made.agree({"x": np.array([[2, 0, 1]])})


@pytest.mark.parametrize("attributes", ["", "<upper = 0>"])
def test_triangles_of_any_size(attributes: str, worker: Worker, tmp_path: Path):
    """As masks of what comes later have them."""
    body = f"y = Trilu {attributes} (x, k) c = Cast <to = 9> (x) b = Trilu {attributes} (c) z = Cast <to = 1> (b)"
    text = f"test (float[2,S,T] x) => (float[2,S,T] y, float[2,S,T] z) <int64 k = {{1}}> {{ {body} }}"
    made = compile_text(worker, text, tmp_path / "c", choices(shapes=("S=2..5", "T=2..6")))
    for rows, columns in ((2, 6), (5, 2), (4, 4)):
        made.agree({"x": numbers(2, rows, columns)})
    text = f"test (float[N,3,4] x) => (float[N,3,4] y, float[N,3,4] z) <int64 k = {{1}}> {{ {body} }}"
    made = compile_text(worker, text, tmp_path / "d", choices(shapes=("N=1..3",)))
    made.agree({"x": numbers(2, 3, 4)})


def test_shapes_of_several_inputs_need_ios_18(worker: Worker, tmp_path: Path):
    text = "test (float[N,6] x, float[N,6] z) => (float[N,6] y) { y = Mul(x, z) }"
    made = compile_text(worker, text, tmp_path / "c", choices(shapes=("N=2,3",)))
    assert made.program.version == TARGETS["iOS18"]
    assert made.notes == (RAISED,)
    assert len(vectors_of(made)) == 2
    given = replace(choices(shapes=("N=2,3",)), given=True)
    with pytest.raises(Unsupported, match="several inputs") as refused:
        compile_text(worker, text, tmp_path / "d", given)
    assert refused.value.ways_out == ("--coreml-deployment-target iOS18",)


def test_a_package_that_is_wrong_at_a_size_is_caught(worker: Worker, tmp_path: Path):
    """The model doubles where there are more than three rows, the package never does."""
    plain = "test (float[N,6] x) => (float[N,6] y) { y = Add(x, x) }"
    body = "s = Shape<end=1>(x) t = Constant<value=int64[1]{3}>() m = Greater(s, t) f = Cast<to=1>(m) d = Mul(f, x)"
    other = f"test (float[N,6] x) => (float[N,6] y) {{ {body} a = Add(x, x) y = Add(a, d) }}"
    chosen = choices(shapes=("N=2,3,5",))
    made, wrong = (compile_text(worker, text, tmp_path / name, chosen) for name, text in (("a", plain), ("b", other)))
    with pytest.raises(ParityError, match=r"output y for x \[5, 6\]"):
        Golden(wrong.source, made.artifact, chosen, FLOAT32).write(None, 0, "float32")


IMAGES = [
    ("float[1,3,6,8] x", "x", "x=rgb,scale:0.0078125,bias:-1"),
    ("float[1,3,6,8] x", "x", "x=bgr,scale:0.5/0.25/0.125,bias:1/-2/3"),
    ("float[1,6,8,3] x", "t", "x=rgb,bias:-127.5"),
]


@pytest.mark.parametrize(("declared", "read", "told"), IMAGES)
def test_pixels_become_what_the_model_gets(declared, read, told, worker: Worker, tmp_path: Path):
    """From the bytes of the golden image, by hand, through ONNX Runtime, to the golden probabilities."""
    moved = "t = Transpose<perm=[0,3,1,2]>(x) " if read == "t" else ""
    text = f"test ({declared}) => (float[1,5] p) {{ {moved}{PICTURE.format(read)} }}"
    made = compile_text(worker, text, tmp_path / "c", choices(images=(told,), labels=LABELS), **KERNEL)
    image = image_of(told)
    (feature,) = made.program.inputs
    assert (feature.kind, feature.shape, feature.colour) == ("image", (6, 8), image.colour.upper())
    session = ort.InferenceSession(made.source.path, providers=["CPUExecutionProvider"])
    for vector in vectors_of(made):
        pixels = array_of(vector["inputs"]["x"], "u1").reshape(6, 8, 3).astype(np.float32)
        ordered = pixels[..., ::-1] if image.colour == "bgr" else pixels
        value = (ordered * np.float32(image.scale) + np.float32(image.bias))[None]
        (wanted,) = session.run(None, {"x": value if read == "t" else value.transpose(0, 3, 1, 2)})
        assert np.ptp(pixels) > 200
        assert np.allclose(array_of(vector["outputs"]["classLabel_probs"], "<f8"), wanted[0], atol=1e-6)
        assert vector["outputs"]["classLabel"]["text"] == LABELS[int(wanted.argmax())]


def test_gray_pictures_and_the_same_bytes(worker: Worker, tmp_path: Path):
    text = "test (float[1,1,6,8] x) => (float[1,1,6,8] y) { y = Relu(x) }"
    chosen = choices(images=("x=gray,scale:2.0,bias:-9.0",))
    first, again = (compile_text(worker, text, tmp_path / name, chosen) for name in "ab")
    assert first.artifact.sha256 == again.artifact.sha256
    golden = [(each.artifact.path.parent / "golden.json").read_bytes() for each in (first, again)]
    assert golden[0] == golden[1]
    vector = vectors_of(first)[0]
    pixels = array_of(vector["inputs"]["x"], "u1").astype(np.float32)
    assert np.array_equal(array_of(vector["outputs"]["y"], "<f4"), np.maximum(2 * pixels - 9, 0))


def test_digits_as_a_classifier_of_images(digits, tmp_path: Path):
    """Through the whole export, in float16; what is delivered answers as the model does, by name."""
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"digit {number}\n" for number in range(10)), encoding="utf-8")
    options = {"image": ("input=gray,scale:0.0625",), "labels": labels}
    result = convertkit.export(
        digits.model, target="coreml", output=tmp_path / "out", fp16=True, target_options={"coreml": options}
    )
    program = read_package(tmp_path / "out" / "model.mlpackage")
    assert [feature.kind for feature in program.outputs] == ["text", "dictionary"]
    with CoreMLRunner(result.artifact) as runner:
        answers = [int(runner.run({"input": image[None]})["output"].argmax()) for image in digits.images[:20]]
    assert np.mean(np.array(answers) == digits.labels[:20]) >= 0.95
    labels.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(UsageError, match="2 labels, and output output has the shape"):
        convertkit.export(
            digits.model, target="coreml", output=tmp_path / "none", target_options={"coreml": {"labels": labels}}
        )
    assert not (tmp_path / "none").exists()


def test_the_export_is_verified_at_stated_sizes(digits, tmp_path: Path):
    result = convertkit.export(
        digits.model, target="coreml", output=tmp_path / "out", target_options={"coreml": {"shapes": ("N=2,5",)}}
    )
    assert [spec.shape[0] for spec in result.artifact.inputs] == ["N"]
    golden = json.loads((tmp_path / "out" / "golden.json").read_text())
    assert [each["inputs"]["input"]["shape"][0] for each in golden["vectors"]] == [2, 5]


def test_the_swift_test_parses(worker: Worker, tmp_path: Path):
    swift = pytest.importorskip("tree_sitter_swift")
    from tree_sitter import Language, Parser

    made = compile_text(worker, "test (float[2] x) => (float[2] y) { y = Relu(x) }", tmp_path / "c")
    source = (made.artifact.path.parent / "GoldenTests.swift").read_bytes()
    assert not Parser(Language(swift.language())).parse(source).root_node.has_error
    assert {b'case "gray"', b'case "rgb"', b'case "float64"', b"case .dictionary"} <= {
        line.strip().split(b":")[0] for line in source.splitlines()
    }


@pytest.mark.parametrize("text", ["N=3", "N=3,3", "N=0..4", "N=4..4", "N=1..1048577", "=1,2", "N=a", "N"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="expected NAME=SIZE,SIZE"):
        sizes_of(text)


@pytest.mark.parametrize("text", ["N=1,8,16", "past + new=2..64"])
def test_sizes_are_spelled_as_they_are_read(text):
    assert str(sizes_of(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "expected NAME=COLOUR"),
        ("x=hsv", "one of rgb, bgr, gray"),
        ("x=rgb,size:3", "expected scale: and bias:"),
        ("x=rgb,bias:1,bias:2", "once each"),
        ("x=rgb,bias:1/2", "3 with / between"),
        ("x=gray,scale:0", "no scale of 0"),
        ("x=gray,scale:inf", "expected numbers"),
    ],
)
def test_images_that_are_none(text, reason):
    with pytest.raises(ValueError, match=reason):
        image_of(text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "there is no label in it"),
        (b"a\n\nb\n", ":2: an empty line between labels"),
        (b"a\nb\na\n", ":3: 'a' is a label twice"),
        (b"\xff\xfe", "expected a text file in UTF-8"),
    ],
)
def test_files_that_have_no_labels(content, reason, tmp_path: Path):
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        read_labels(path)


X = TensorSpec("x", (1, 3, 6, 8), "float32")
OPEN = TensorSpec("x", ("N", 3, "H", 8), "float32")
P = TensorSpec("p", (1, 5), "float32")


@pytest.mark.parametrize(
    ("told", "inputs", "outputs", "reason"),
    [
        ({"shapes": ("N=1,2",)}, X, (P,), "no dynamic dimension of that name; no dimension is dynamic"),
        ({"shapes": ("M=1,2",)}, OPEN, (P,), "dynamic are N, H"),
        ({"shapes": ("N=1,2", "N=1,3")}, OPEN, (P,), "given twice for one dimension"),
        ({"shapes": ("N=1,2", "H=1..3")}, OPEN, (P,), "counts sizes of one dimension and has a range of another"),
        ({"images": ("z=rgb",)}, X, (P,), "no input of that name; it has x"),
        ({"images": ("x=gray",)}, X, (P,), "is for 1 channel, the input has the shape"),
        ({"images": ("x=rgb", "x=bgr")}, X, (P,), "given twice for one input"),
        ({"images": ("x=rgb",)}, replace(X, dtype="int64"), (P,), "int64 .* is not one image in floats"),
        ({"images": ("x=rgb",)}, replace(X, shape=(1, 18)), (P,), "is not one image in floats"),
        ({"labels": ("a", "b")}, X, (P,), "2 labels, and output p has the shape"),
        ({"labels": LABELS}, X, (P, P), "the model has 2 outputs"),
        ({"labels": LABELS}, X, (replace(P, dtype="int64"),), "not one real number for each class"),
    ],
)
def test_what_the_model_does_not_fit_is_a_mistake_of_use(told, inputs, outputs, reason):
    with pytest.raises(UsageError, match=reason):
        settled(choices(**told), (inputs,), outputs)


@pytest.mark.parametrize("text", ["N=2,4", "N=2..4"])
def test_samples_come_one_at_a_time(text):
    with pytest.raises(UsageError, match="1 has to be among the sizes"):
        check_batch([sizes_of(text)], (OPEN,))
    check_batch([sizes_of("N=1,4"), sizes_of("H=2,4")], (OPEN,))


def test_more_shapes_than_core_ml_counts():
    sizes = ",".join(map(str, range(1, 13)))
    with pytest.raises(Unsupported, match="more than 128 shapes"):
        settled(choices(shapes=(f"N={sizes}", f"H={sizes}")), (OPEN,), (P,))


def vectors_of(made: Compiled) -> list[dict[str, dict[str, dict[str, str]]]]:
    return json.loads((made.artifact.path.parent / "golden.json").read_text())["vectors"]


def array_of(told: dict[str, str], dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(told["data"]), dtype)
