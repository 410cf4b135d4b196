"""Files that estimates are held against: ``estimate_set.py FOLDER [--cases DIR] [--zoo DIR]``, what is there stays.

``FOLDER/tiny`` has chains of operators on a few numbers, float32 and int8: what a call and an operator cost beside what
they compute is fitted to them (``call_costs.py``).  ``FOLDER/whole`` has the files that nothing is fitted to: the
fixtures, with ``--cases`` public files as their authors converted them and ours of the same models, with ``--zoo`` its
models.  ``table_estimates.py`` compares these.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import ConvertKitError

FIXTURES = Path(__file__).parents[1] / "fixtures"
LENGTHS = (1, 2, 4, 8)
WIDE = 8
WHOLE = "whole"
"""Chains of int32, which XNNPACK leaves to LiteRT's own kernels."""
REFERENCES = {
    "hello.f32": "tflm/hello_world_float.tflite",
    "hello.int8": "tflm/hello_world_int8.tflite",
    "micro_speech.int8": "tflm/micro_speech_quantized.tflite",
    "dtln1.ref-f32": "dtln/model_1.tflite",
    "dtln2.ref-f32": "dtln/model_2.tflite",
    "dtln1.dyn": "dtln/model_quant_1.tflite",
    "dtln2.dyn": "dtln/model_quant_2.tflite",
    "ic.ref-f32": "mlperf-ic/pretrainedResnet.tflite",
    "ic.ref-int8": "mlperf-ic/pretrainedResnet_quant.tflite",
    "kws.ref-hybrid": "mlperf-kws/reference_hybrid.tflite",
    "kws.ref-int8": "mlperf-kws/reference_int8.tflite",
    "mnist-lstm.f32": "mnist/trained_lstm.tflite",
    "mnist-lstm.int8": "mnist/trained_lstm_int8.tflite",
}
"""Of the cases, as their authors converted them."""
SOURCES = {
    "dtln1": "dtln/model_1.onnx",
    "dtln2": "dtln/model_2.onnx",
    "kws": "mlperf-kws/saved_model",
    "mnist-cnn": "mnist/mnist.onnx",
}
OWN = ("digits", "keras-digits", "flax-digits", "brackets")
ZOO = ("bert_small", "mobilenetv2", "mobilenetv3s", "unet", "gru", "lstm", "gpt_block")
FORMS = {"f32": {}, "int8": {"int8": True, "accept_loss": True}, "w8": {"w8": True}}
Feed = dict[str, npt.NDArray[np.float32]]


def chains() -> Iterator[tuple[str, ModelProto, Feed]]:
    """Models of one kind of operator each, of several lengths."""
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        for kind, shape in (
            ("dense", (1, WIDE)),
            ("add", (1, WIDE)),
            ("tanh", (1, WIDE)),
            ("conv", (1, 4, 4, 4)),
            (WHOLE, (1, WIDE)),
        ):
            nodes: list[NodeProto] = []
            stored = {}
            for place in range(length):
                ends = [f"v{place}" if place else "x"], [f"v{place + 1}" if place + 1 < length else "y"]
                if kind == "dense":
                    stored[f"w{place}"] = rng.normal(0, 0.3, (WIDE, WIDE)).astype(np.float32)
                    nodes.append(helper.make_node("MatMul", [*ends[0], f"w{place}"], ends[1]))
                elif kind == "conv":
                    stored[f"w{place}"] = rng.normal(0, 0.2, (4, 4, 3, 3)).astype(np.float32)
                    nodes.append(helper.make_node("Conv", [*ends[0], f"w{place}"], ends[1], pads=[1] * 4))
                elif kind in ("add", WHOLE):
                    nodes.append(helper.make_node("Add", [*ends[0], "x"], ends[1]))
                else:
                    nodes.append(helper.make_node("Tanh", *ends))
            dtype = TensorProto.INT32 if kind == WHOLE else TensorProto.FLOAT
            infos = [helper.make_tensor_value_info(name, dtype, shape) for name in ("x", "y")]
            tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
            graph = helper.make_graph(nodes, kind, infos[:1], infos[1:], tensors)
            opset = [helper.make_opsetid("", 18)]
            feed = {"x": rng.normal(0, 1, (20, *shape[1:])).astype(np.float32)}
            yield f"{kind}{length}", helper.make_model(graph, opset_imports=opset, ir_version=9), feed


def export(source: str, path: Path, **options: object) -> None:
    """The file of one export; what is not delivered is told."""
    if path.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            convertkit.export(source, target="tflite", output=Path(folder) / "out", **options)
        except ConvertKitError as error:
            print(f"{path.name}: {error}")
            return
        shutil.copy(Path(folder) / "out" / "model.tflite", path)


def tiny(folder: Path) -> None:
    """What is fitted to."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for kind, model, feed in chains():
            source = Path(name) / f"{kind}.onnx"
            source.write_bytes(model.SerializeToString())
            export(str(source), folder / f"{kind}.f32.tflite")
            if not kind.startswith(WHOLE):
                export(str(source), folder / f"{kind}.int8.tflite", int8=True, full_integer=True, calib=feed)


def whole(folder: Path, cases: Path | None, zoo: Path | None) -> None:
    """What is compared."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in OWN:
        models = sorted((FIXTURES / name).glob("model.*"))
        forms(str(models[0]), FIXTURES / name / "calib.npz", folder, name)
    for name, each in (REFERENCES if cases else {}).items():
        assert cases is not None
        shutil.copy(cases / each, folder / f"{name}.tflite")
    for name, each in (SOURCES if cases else {}).items():
        assert cases is not None
        forms(str(cases / each), None, folder, name)
    for name in ZOO if zoo else ():
        assert zoo is not None
        forms(str(zoo / f"{name}.onnx"), zoo / f"{name}.calib.npz", folder, name, ("f32", "int8"))


def forms(source: str, calib: Path | None, folder: Path, name: str, which: Sequence[str] = tuple(FORMS)) -> None:
    """In float32, and where there is data, in int8 and with weights of 8 bits."""
    for form, options in ((each, FORMS[each]) for each in which):
        if form == "f32" or (calib is not None and calib.exists()):
            data = {} if form == "f32" else {"calib": str(calib)}
            export(source, folder / f"{name}.{form}.tflite", **options, **data)


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--zoo", type=Path)
    args = parser.parse_args()
    tiny(args.folder / "tiny")
    whole(args.folder / "whole", args.cases, args.zoo)


if __name__ == "__main__":
    main()
