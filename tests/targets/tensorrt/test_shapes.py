"""``--tensorrt-profile`` becomes the line of trtexec; sizes and names that cannot be are refused."""

from __future__ import annotations

import shlex

import pytest

from convertkit.artifact import TensorSpec
from convertkit.errors import UsageError
from convertkit.targets.tensorrt.shapes import Range, check_names, command, size_range
from tests import onnx_models
from tests.command_line import check_refusal, everything_below, here

INPUTS = (
    TensorSpec("ids", ("N", "T"), "int64"),
    TensorSpec("mask it", ("N", 1, "T"), "float32"),
    TensorSpec("fixed", (1, 3), "float32"),
)


def test_every_dynamic_input_has_its_three_shapes() -> None:
    line = command("model.onnx", INPUTS, [Range("T", 8, 128, 512), Range("N", 1, 4, 16)])
    assert shlex.split(line.replace("\\\n", "")) == [
        "trtexec",
        "--onnx=model.onnx",
        "--saveEngine=model.engine",
        "--stronglyTyped",
        "--minShapes=ids:1x8,mask it:1x1x8",
        "--optShapes=ids:4x128,mask it:4x1x128",
        "--maxShapes=ids:16x512,mask it:16x1x512",
    ]


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ("M=1,2,3", "--tensorrt-profile M: the inputs have no dynamic dimension of that name; dynamic are N, T"),
        (
            "N=1,2,3",
            "leaves out T, which is dynamic, too\n  try   --tensorrt-profile T=MIN,OPT,MAX, or --static T=SIZE",
        ),
    ],
)
def test_names_are_those_of_dynamic_dimensions(ranges: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        command("model.onnx", INPUTS, [size_range(ranges)])
    assert says in str(caught.value)


def test_fixed_sizes_have_no_range() -> None:
    with pytest.raises(UsageError, match="no dimension is dynamic"):
        command("model.onnx", INPUTS[2:], [Range("N", 1, 2, 3)])


def test_a_dimension_has_one_range() -> None:
    with pytest.raises(UsageError, match="--tensorrt-profile N is given twice"):
        check_names([Range("N", 1, 2, 3), Range("M", 1, 2, 3), Range("N", 1, 1, 1)])


@pytest.mark.parametrize(
    "text", ["N", "N=1", "=1,2,3", "N=1,2", "N=a,2,3", "N=0,1,2", "N=2,1,3", "N=1,3,2", "N=1,2,3000000000"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        size_range(text)


def test_a_range_is_written_as_it_is_read() -> None:
    assert str(size_range("2*N=1, 2,3")) == "2*N=1,2,3"
    assert size_range(str(Range("N", 1, 2, 3))) == Range("N", 1, 2, 3)


def test_the_page_has_the_same_line(tmp_path) -> None:
    source = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    said = here("export", source, "-t", "tensorrt", "--tensorrt-profile", "N=2,4,6", "-o", tmp_path / "out")
    assert said.code == 0, said.err
    line = (tmp_path / "out" / "trtexec.txt").read_text()
    assert "--minShapes=x:2x5 " in line
    assert line in (tmp_path / "out" / "report.html").read_text()


def test_a_refusal_leaves_nothing(tmp_path) -> None:
    source = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    for flags in (["--static", "N=2"], ["--tensorrt-profile", "M=1,2,3"]):
        said = here("export", source, "-t", "tensorrt", "--tensorrt-profile", "N=2,4,6", *flags, "-o", tmp_path / "out")
        check_refusal(said, 2, "--tensorrt-profile")
    assert everything_below(tmp_path) == {"mlp.onnx"}
