"""Every flag of ``export`` works or is refused early, with a sentence that names it: none is ignored."""

from pathlib import Path

import numpy as np
import pytest

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec
from convertkit.commands import command
from convertkit.options.flags import merged
from convertkit.options.relevance import check_interface
from convertkit.recipe import ExportOptions
from tests import onnx_models
from tests.command_line import refused
from tests.installed import needs

IMAGE = TensorSpec("image", (1, 3, 4, 5), "float32")
RNG = np.random.default_rng(0)

IDLE = {
    "--target": [("--target onnxruntime --target onnxruntime", "--target onnxruntime is given twice")],
    "--output": [("--output=", "--output is empty")],
    "--int8": [
        ("--int8", "--int8 measures activation ranges and needs data: --calib"),
        ("--int8", "a model that is quantized already keeps its integers without --int8"),
    ],
    "--int16x8": [("--target tflite --int16x8", "--int16x8 measures"), ("--int16x8", "does not deliver int16x8")],
    "--fp16": [("--fp16 --w8", "exclude each other")],
    "--w8": [("--w8 --w4", "exclude each other")],
    "--w4": [("--w4 --int8", "exclude each other")],
    "--fp8": [
        ("--fp8", "target onnxruntime does not deliver fp8"),
        ("--target tensorrt --fp8", "--fp8 measures activation ranges and needs data: --calib"),
        ("--target tensorrt --fp8 --w8", "exclude each other"),
    ],
    "--bf16": [
        ("--bf16", "target onnxruntime does not deliver bf16"),
        ("--target tensorrt --bf16 --fp16", "exclude each other"),
    ],
    "--size-first": [
        ("--size-first --w8", "--size-first goes with --w4"),
        ("--size-first --w4 --accept-loss", "--accept-loss adds nothing"),
    ],
    "--full-integer": [("--full-integer --w8", "--full-integer goes with --int8")],
    "--accept-loss": [
        ("--accept-loss --fp16", "--accept-loss goes with --int8"),
        ("--accept-loss --w4", "--accept-loss is about samples of --calib"),
        ("--accept-loss --int8 --full-integer --calib DATA", "--full-integer keeps all integers as it is"),
    ],
    "--device": [
        ("--target tflite --w8 --device pone", "no device is called so, did you mean 'phone'"),
        (
            "--target onnxruntime --w8 --device phone",
            "--device does nothing for onnxruntime without --int8; it is for --target android or tflite",
        ),
        (
            "--target stablehlo --prune-channels 0.5 --device phone",
            "--device does nothing for stablehlo; it is for --target android or tflite",
        ),
    ],
    "--io-dtype": [
        ("--io-dtype int8 --w8", "--io-dtype int8 goes with --int8"),
        (
            "--io-dtype int8 --int8 --calib DATA",
            "it is for --target android or ethos-u or litert-npu or tflite or tflite-micro",
        ),
        ("--target tflite --int8 --calib DATA --io-dtype int16", "--io-dtype int16 is not what --int8 computes with"),
        ("--target tflite --int16x8 --calib DATA --io-dtype uint8", "--io-dtype uint8 is not what --int16x8"),
    ],
    "--calib": [("--calib=", "--calib is empty")],
    "--calib-samples": [
        ("--calib-samples 3", "--calib-samples chooses among the data of --calib"),
        ("--calib DATA --calib-samples 99999999999", "--calib-samples 99999999999: must be"),
    ],
    "--images": [
        ("--images crop", "--images is about folders of images"),
        ("--images crop --calib DATA", "--images is about folders of images"),
        ("--images crop --calib ARRAYS", "--images is about folders of images"),
    ],
    "--wav": [
        ("--wav mono", "--wav is about folders of WAV files"),
        ("--wav mono --calib ARRAYS", "--wav is about folders of WAV files"),
        ("--wav 16000", "expected words of rate:16000"),
    ],
    "--calib-method": [("--calib-method mse --w8 --calib DATA", "--calib-method mse goes with --int8")],
    "--eval": [("--eval=", "--eval is empty")],
    "--metric": [
        ("--metric top1", "--metric needs --eval"),
        ("--eval DATA --metric no.such:func", "--metric no.such:func cannot be imported"),
    ],
    "--max-drop": [("--max-drop 1", "--max-drop needs --eval"), ("--eval DATA --max-drop inf", "--max-drop inf")],
    "--strict": [("--strict", "--strict goes with a precision")],
    "--prune": [("--prune 0.5 --prune-channels 0.5", "--prune and --prune-channels exclude each other")],
    "--prune-channels": [
        ("--prune-channels 1", "--prune-channels 1: expected"),
        ("--prune-channels auto", "--prune-channels auto measures what the model keeps: give it --calib PATH"),
    ],
    "--budget": [
        ("--budget size=1KB", "--budget size=1KB compares what artifacts keep: give it --calib PATH"),
    ],
    "--low-rank": [
        ("--low-rank 2", "--low-rank 2: expected a share of each product's power between 0 and 1, or auto"),
        ("--low-rank auto", "--low-rank auto measures what the model keeps: give it --calib PATH"),
    ],
    "--target-latency": [
        ("--target-latency 1.5", "--target-latency 1.5: expected a share between 0 and 1"),
        ("--target-latency 0.5 --prune-channels 0.5", "--prune-channels and --target-latency exclude each other"),
        ("--target-latency 0.5 --prune 0.5", "--prune and --target-latency exclude each other"),
    ],
    "--recover": [
        ("--recover 0 --prune 0.5 --calib DATA", "--recover 0.0: expected minutes"),
        ("--recover 1 --prune 0.5", "--recover trains on --calib"),
        ("--recover 1 --calib DATA", "--recover makes up for"),
    ],
    "--input": [
        ("--input z:1,5", "--input z: the model has no such input"),
        ("--input x:1,5 --input x:2,5", "--input x is given twice"),
        (
            "--input x:M,5",
            "--input x: M,5, the model takes N,5: instead of M give N, which",
        ),
        ("--input x:1,5:float32[3,1)", "--input x: [3,1) holds no values"),
        ("--input x:1,5:float32[0,inf)", "--input x: [0,inf) holds no values"),
    ],
    "--model": [("--model pkg.mod:make", "--model does nothing for")],
    "--input-layout": [
        (
            "--input-layout nhwc",
            "--input-layout does nothing for onnxruntime; it is for --target android",
        ),
        ("--target tflite --input-layout nhwc", "--input-layout nhwc: no input or output"),
    ],
    "--static": [
        ("--static M=4", "--static M: the model has no dynamic dimension of that name; it has: N"),
        ("--static N=4 --static N=5", "--static N is given twice"),
        ("--input x:1,5 --static N=4", "--static N: the model has no dynamic dimension"),
    ],
    "--signature": [("--signature main", "--signature does nothing for")],
    "--description": [
        (
            "--description words",
            "--description does nothing for onnxruntime; it is for --target android or ethos-u or ios",
        ),
    ],
    "--label-file": [
        (
            "--label-file LABELS",
            "--label-file does nothing for onnxruntime; it is for --target android or ethos-u or ios",
        ),
        ("--target tflite --label-file LABELS", "2 labels, and no output has 2 classes"),
        ("--target tflite --label-file DATA", "is not UTF-8 text"),
    ],
    "--compress": [("--compress", "--compress does nothing for onnxruntime; it is for --target android or ios")],
    "--normalization": [
        (
            "--normalization x:1/2",
            "or stablehlo or tf-serving or tflite or tflite-micro or triton-tf-serving, or for a folder of images",
        ),
        ("--target tflite --normalization z:1/2", "--normalization z: no such input; there are: x"),
        ("--target tflite --normalization x:1,2/1,2", "--normalization x: 2 channels"),
        ("--target tflite --normalization x:1/2 --normalization x:1/3", "--normalization x is given twice"),
    ],
    "--preprocess": [
        ("--preprocess image:8,mean:0,std:1", "--preprocess: which input is meant? The model has: none with four axes"),
        ("--preprocess image:8,mean:0,std:1 --normalization x:1/2", "leave --normalization out"),
        ("--preprocess audio:8000 --target tflite --int8 --full-integer --calib DATA", "leave one of them out"),
        (
            "--preprocess image:8,mean:0,std:1 --target tflite --int16x8 --full-integer --calib DATA",
            "has 16: use --int8, or leave --full-integer out",
        ),
    ],
    "--postprocess": [
        ("--postprocess top:4", "output y has 3 classes, too few for top:4"),
        ("--postprocess top:2 --target tflite --int8 --calib DATA --io-dtype int8", "leave one of them out"),
    ],
    "--opset": [
        ("--target tflite --opset 17", "--opset does nothing for tflite; it is for --target bentoml or ios or "),
        ("--opset 12 --w8", "--opset 12 has no integers of the kind that --w8 writes"),
        ("--opset 20 --w4", "--opset 20 has no integers of the kind that --w4 writes"),
    ],
    "--trust": [
        ("--trust pickle", "--trust pickle does nothing for"),
        ("--trust lambda", "it is for keras"),
        ("--trust pyfunc", "it is for keras or tensorflow"),
    ],
    "--pass": [("--pass quantize", "--pass quantize: the other flags leave it nothing to do")],
    "--seed": [("--seed 99999999999999999999", "--seed 99999999999999999999: must fit")],
    "--recipe": [("--recipe=", ". is not a file")],
    "--timeout": [("--timeout 0", "--timeout 0.0: must be positive")],
    "--scheduler": [
        (f"--scheduler {text}", f"--scheduler {text}: not the address of a Dask scheduler; write tcp://HOST:PORT")
        for text in ("garbage", "http://x:1", "tcp://x", "tcp://:1")
    ],
    "--package": [("--target tflite --package triton", "--package triton does not take what --target tflite delivers")],
    "--jobs": [("--jobs 0", "--jobs 0: must be from 1 to 1024")],
}
"""By flag: command lines in which it could do nothing or could not work, and what is said."""

ALONE = {
    "--keep-failed",
    "--allow-unverified",
    "--force",
    "--json",
    "--log-json",
    "--quiet",
    "--verbose",
    "--help",
    "--cache",
    "--no-cache",
}
"""Permissions and ways to tell, which need not come to be used."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to export into, and beside it the data that the table names."""
    data, labels, arrays = tmp_path / "data.npz", tmp_path / "labels.txt", tmp_path / "arrays"
    np.savez(data, x=RNG.standard_normal((8, 5)).astype(np.float32), label=np.zeros(8, np.int64))
    labels.write_text("cat\ndog\n")
    arrays.mkdir()
    np.save(arrays / "1.npy", np.zeros(5, np.float32))
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def words(line, folder):
    known = {"DATA": folder / "data.npz", "LABELS": folder / "labels.txt", "ARRAYS": folder / "arrays"}
    return [known.get(word, word) for word in line.split()]


@pytest.mark.parametrize(("line", "says"), [case for cases in IDLE.values() for case in cases])
def test_what_would_do_nothing_is_refused(place, tmp_path, line, says):
    source = onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")
    refused(place, 2, [says], source, *words(line, tmp_path))


def test_every_flag_is_in_the_table():
    flags = {flag for each in command("export").params for flag in each.opts if flag.startswith("--")}
    assert flags - ALONE == IDLE.keys()


@pytest.mark.parametrize("group", ["converters", "targets"])
def test_what_plugins_read_are_flags(group):
    known = {
        "converters": {"--model", "--signature", "--trust pickle", "--trust lambda", "--trust pyfunc"},
        "targets": {
            "--opset",
            "--io-dtype",
            "--input-layout",
            "--description",
            "--label-file",
            "--compress",
            "--normalization",
            "--device",
            "--images",
        },
    }
    found = plugins.converters() if group == "converters" else map(plugins.target, plugins.target_names())
    assert set().union(*(each.reads for each in found)) == known[group]


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
def test_data_that_cannot_be_is_refused_before_the_source_is_opened(place, tmp_path, flag):
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x08")
    for given in ("nowhere.npz", "no_such_package:feeds"):
        refused(place, 1, [given], tmp_path / "broken.onnx", flag, given)


def test_a_factory_beside_a_model_that_needs_none(place):
    needs("torch")
    (place / "served.py").write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(3, 2)\n")
    given = ["served:make", "--input", "x:1,3", "--model", "served:make"]
    refused(place, 2, ["--model does nothing for served:make, which makes the module itself"], *given)


def test_a_layout_is_for_images_that_come_out_too():
    decoder = Artifact(Path("m.onnx"), "onnx", (TensorSpec("z", (1, 8), "float32"),), (IMAGE,), "")
    check_interface(ExportOptions("m.onnx", input_layout="nchw"), decoder)


def test_nchw_asks_for_nothing_of_a_model_without_images():
    vector = TensorSpec("x", (1, 8), "float32")
    check_interface(ExportOptions("m.onnx", input_layout="nchw"), Artifact(Path("m.onnx"), "onnx", (vector,), (), ""))


def test_two_inputs_that_disagree_about_a_size(place, tmp_path):
    nodes = [onnx_models.helper.make_node("Add", ["a", "b"], ["y"])]
    ends = {"a": ["N", 2], "b": ["N", 2]}
    inputs = [onnx_models.helper.make_tensor_value_info(name, 1, dims) for name, dims in ends.items()]
    outputs = [onnx_models.helper.make_tensor_value_info("y", 1, ["N", 2])]
    graph = onnx_models.helper.make_graph(nodes, "sum", inputs, outputs)
    made = onnx_models.helper.make_model(graph, opset_imports=[onnx_models.helper.make_opsetid("", 18)], ir_version=10)
    source = onnx_models.write(tmp_path, made, "sum.onnx")
    refused(place, 2, ["--input b: N is 3 here and 2"], source, "--input", "a:2,2", "--input", "b:3,2")


def test_a_precision_on_the_command_line_replaces_the_recipes():
    assert merged({"int8": True, "calib": "c.npz"}, {"fp16": True}) == {"fp16": True, "calib": "c.npz"}
    assert merged({"int8": True}, {"calib": "c.npz"}) == {"int8": True, "calib": "c.npz"}
