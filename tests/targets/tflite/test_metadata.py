"""Description, normalisation and labels: written, found again by our reader and by ZIP readers, refused where unfit."""

from __future__ import annotations

import zipfile

import pytest
from onnx import numpy_helper, parser

from convertkit.artifact import Artifact
from convertkit.converters.tflite.metadata import BUFFER, described
from convertkit.converters.tflite.model import read_model
from convertkit.errors import UsageError
from convertkit.options.flags import options_from
from convertkit.targets.tflite import writer
from convertkit.targets.tflite.metadata import metadata_of
from convertkit.targets.tflite.runner import TfliteRunner
from tests.targets.tflite.compiled import compiled, numbers

GIVEN = {
    "description": "Sorts pictures of animals.",
    "normalization": ("image:123.7,116.3,103.5/58.4,57.1,57.4",),
}


@pytest.fixture(scope="module")
def classifier():
    """A convolution and a mean over the picture: three channels in, four classes out."""
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["" : 21]> g (float[N,3,6,5] image)
        => (float[N,4] scores) {
            features = Conv(image, w)
            pooled = GlobalAveragePool(features)
            scores = Flatten(pooled) }""")
    proto.graph.initializer.append(numpy_helper.from_array(numbers(4, 3, 2, 2), "w"))
    return compiled(proto).compiled


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "animals.txt"
    path.write_bytes("cat\r\ndog\r\nbär\r\ngnu".encode())
    return str(path)


def written(classifier, path, labels):
    options = options_from({"source": "m.onnx", **GIVEN, "label_file": labels})
    classifier.write(path, metadata_of(options, classifier.inputs, classifier.outputs))
    return path


def test_our_reader_says_it_again(classifier, labels, tmp_path):
    path = written(classifier, tmp_path / "model.tflite", labels)
    assert described(read_model(path).metadata[BUFFER]) == (
        "the file describes itself: Sorts pictures of animals.",
        "input image was normalised: mean 123.7, 116.3, 103.5, deviation 58.4, 57.1, 57.4",
        "output scores has labels in labels.txt",
    )


def test_labels_of_a_choice_name_its_values(labels, tmp_path):
    """Not the elements of the best scores, which are as many as there are labels."""
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["" : 21]> g (float[N,4] x)
        => (float[N,4] best, int64[N,4] places) {
            k = Constant<value = int64[1] {4}>()
            best, places = TopK(x, k) }""")
    chooser = compiled(proto).compiled
    found = metadata_of(options_from({"source": "m.onnx", "label_file": labels}), chooser.inputs, chooser.outputs)
    assert (found.labelled, found.by_value) == ("places", True)
    chooser.write(tmp_path / "model.tflite", found)
    assert described(read_model(tmp_path / "model.tflite").metadata[BUFFER]) == (
        "output places has labels of its values in labels.txt",
    )


@pytest.mark.parametrize("limit", [0, writer.INSIDE_LIMIT_BYTES])
def test_labels_lie_in_an_archive_behind_a_model_that_runs(classifier, labels, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(writer, "INSIDE_LIMIT_BYTES", limit)
    path = written(classifier, tmp_path / "model.tflite", labels)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        (entry,) = archive.infolist()
        assert archive.read(entry) == "cat\ndog\nbär\ngnu\n".encode()
        with path.open("rb") as stream:  # offsets count from the start of the file: no reader has to guess
            stream.seek(entry.header_offset)
            assert stream.read(4) == b"PK\3\4"
    with TfliteRunner(Artifact(path, "tflite", classifier.inputs, classifier.outputs, "")) as runner:
        assert runner.run({"image": numbers(2, 3, 6, 5)})["scores"].shape == (2, 4)


def test_bytes_repeat(classifier, labels, tmp_path):
    first, second = (written(classifier, tmp_path / name, labels).read_bytes() for name in ("a.tflite", "b.tflite"))
    assert first == second


def test_nothing_said_adds_nothing(classifier, tmp_path):
    classifier.write(tmp_path / "plain.tflite")
    assert BUFFER not in read_model(tmp_path / "plain.tflite").metadata


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"normalization": "picture:1/2"}, "--normalization picture: no such input; there are: image"),
        ({"normalization": "image:1,2/1,2"}, "--normalization image: 2 channels"),
        ({"label_file": "nowhere.txt"}, "--label-file nowhere.txt: there is no such file"),
        ({"label_file": "two"}, "2 labels, and no output has 2 classes; outputs: scores"),
    ],
)
def test_what_does_not_fit_is_refused(classifier, tmp_path, monkeypatch, given, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two").write_text("a\nb\n")
    with pytest.raises(UsageError, match=says.replace("[", r"\[")):
        metadata_of(options_from({"source": "m.onnx", **given}), classifier.inputs, classifier.outputs)
