"""What ``bench/engines.py`` runs: models with their samples, what each target is asked for, and one quantized model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import npus
import numpy as np
import onnxruntime as ort
from PIL import Image

import convertkit
from convertkit.errors import ParityError

CASES = Path(os.environ["CONVERTKIT_CASES"])
Samples = Mapping[str, np.ndarray]
Flags = Mapping[str, Any]
INT8: Flags = {"int8": True}
WHOLE: Flags = {"int8": True, "full_integer": True}
FORMS: Mapping[str, Mapping[str, Flags]] = {
    "executorch": {"float32": {}, "int8": INT8},
    "iree": {"float32": {}, "int8": INT8},
    "tvm": {"float32": {}},
    "stablehlo": {"float32": {}},
    "ncnn": {"float32": {}, "w8": {"w8": True}},
    "mnn": {"float32": {}, "w8": {"w8": True}, "w4": {"w4": True}},
    "qnn": {"int8": WHOLE},
    "litert-npu": {"int8": {**WHOLE, "io_dtype": "int8"}},
    "rknn": {"int8": INT8},
    "ethos-u": {"int8": {**WHOLE, "io_dtype": "int8"}},
    "openvino": {"int8": INT8},
    "onnxruntime": {"int8": INT8},
}
"""What each target is asked for."""
WITH_CPU = "int8, the rest on the CPU"
_OF_NORMS = ("CAST", "ADD", "GATHER")
_OF_IDS = (*_OF_NORMS, "LESS", "SELECT_V2", "RESHAPE", "EQUAL")
LEFT: Mapping[str, tuple[str, ...]] = {"vit_tiny": _OF_NORMS, "gpt_block": _OF_IDS, "bert_small": _OF_IDS}
"""Models of the zoo whose rest Vela leaves to the CPU, with the operators that may stay there."""
FOR_VNNI = "int8, for VNNI"
ACCURATE: Mapping[str, Mapping[str, Flags]] = {
    **{target: {"int8": FORMS[target]["int8"]} for target in ("qnn", "litert-npu", "rknn", "executorch")},
    "openvino": {"int8": INT8, FOR_VNNI: {**INT8, "target_options": {"openvino": {"cpu": "vnni"}}}},
}
"""Targets whose int8 has to keep the accuracy of float; OpenVINO's are for any processor but where VNNI is said."""
DRAWS = 8
"""Of calibration samples, of the models in ``DRAWN``."""
DRAWN = ("MLPerf keyword spotting",)
EVALUATED = 300
NAMES = (
    "mobilenetv2",
    "mobilenetv3s",
    "resnet18",
    "efficientnet_b0",
    "vit_tiny",
    "bert_small",
    "unet",
    "yolo_head",
    "convnext_t",
)
SEQUENCES = ("lstm", "gru", "gpt_block")
SIDE, CROPS = 32, 600
ORT_OFF, ORT = "ONNX Runtime, as written", "ONNX Runtime"
COMPARED = 50
"""Samples on which engines are held against each other."""


@dataclass(frozen=True, slots=True)
class Model:
    """``labelled`` samples are there or not; ``held_out`` are samples without labels that no calibration saw."""

    name: str
    path: Path
    calibration: Samples
    labelled: Samples | None = None
    held_out: Samples | None = None


def cases() -> Iterator[Model]:
    """Fixtures and real models; the image classifier sees parts of photographs, as its own data is not there."""
    for each in npus.models():
        if each.labelled is not None:
            some = {name: values[:EVALUATED] for name, values in each.labelled.items()}
            yield Model(each.name, each.path, each.calibration, some)
            continue
        crops = photographs()
        yield Model(each.name, each.path, {"input_1": crops[:200]}, None, {"input_1": crops[200:500]})


def labelled() -> Iterator[Model]:
    """Models whose labels are here, with every sample that no calibration saw."""
    for each in npus.models():
        if each.labelled is not None:
            yield Model(each.name, each.path, each.calibration, each.labelled)


def drawn(model: Model, draw: int) -> Model:
    """The model with as many calibration samples as before, chosen by lot out of those with labels; the rest stays."""
    assert model.labelled is not None
    order = np.random.default_rng(draw).permutation(len(model.labelled["label"]))
    count = len(next(iter(model.calibration.values())))
    chosen = {name: model.labelled[name][order[:count]] for name in model.calibration}
    rest = {name: values[order[count:]] for name, values in model.labelled.items()}
    return replace(model, calibration=chosen, labelled=rest)


def photographs() -> np.ndarray:
    """Squares of several sizes out of the photographs among the cases, [600, 32, 32, 3], 0 to 255, shuffled."""
    rng = np.random.default_rng(0)
    pictures = [Image.open(path).convert("RGB") for path in sorted((CASES / "blazeface").glob("*.png"))]
    found = []
    for number in range(CROPS):
        picture = pictures[number % len(pictures)]
        side = int(rng.integers(SIDE, min(picture.size) + 1))
        left, top = (int(rng.integers(0, size - side + 1)) for size in picture.size)
        square = picture.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        found.append(np.asarray(square, np.float32))
    return np.stack(found)[rng.permutation(CROPS)]


def zoo(folder: Path | None) -> Iterator[Model]:
    """Architectures with random weights, where ``make_zoo.py`` has written them."""
    for name in (*SEQUENCES, *NAMES) if folder is not None else ():
        assert folder is not None
        yield Model(name, folder / f"{name}.onnx", dict(np.load(folder / f"{name}.calib.npz")))


def forms(part: str, model: str, target: str) -> Mapping[str, Flags]:
    """What a target is asked for, of one model."""
    if part == "zoo" and target == "ethos-u" and model in LEFT:
        flags = {**FORMS[target]["int8"], "target_options": {target: {"allow-cpu": LEFT[model]}}}
        return {**FORMS[target], WITH_CPU: flags}
    return FORMS[target]


def quantized(name: str, folder: Path) -> tuple[Path, list[dict[str, np.ndarray]]]:
    """The graph that every engine gets, written once, and the samples that each runs."""
    model = next(each for each in cases() if each.name == name)
    place = folder / "engines" / name.replace(" ", "-")
    if not (place / "model.onnx").exists():
        calibration = dict(model.calibration)
        convertkit.export(model.path, "tensorrt", calib=calibration, output=place, **INT8)
    assert model.labelled is not None
    (given,) = (key for key in model.labelled if key in model.calibration)
    return place / "model.onnx", [{given: sample[None]} for sample in model.labelled[given][:COMPARED]]


def _session(graph: Path, feeds: list[dict[str, np.ndarray]], *, optimized: bool) -> np.ndarray:
    options = ort.SessionOptions()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    return np.stack([session.run(None, feed)[0].reshape(-1) for feed in feeds])


def _litert(graph: Path, feeds: list[dict[str, np.ndarray]]) -> np.ndarray:
    """The file of the ``tflite`` target, which is not delivered where it is an LSB off on a tie of this graph."""
    from ai_edge_litert.interpreter import Interpreter

    with tempfile.TemporaryDirectory() as place:
        with suppress(ParityError):
            convertkit.export(graph, "tflite", output=Path(place) / "out", keep_failed=True, input_layout="nchw")
        (model,) = Path(place).glob("out*/model.tflite")
        interpreter = Interpreter(model_path=str(model))
        interpreter.allocate_tensors()
        (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
        found = []
        for feed in feeds:
            interpreter.set_tensor(given["index"], next(iter(feed.values())).reshape(given["shape"]))
            interpreter.invoke()
            found.append(interpreter.get_tensor(made["index"]).reshape(-1))
    return np.stack(found)


CALLS: Mapping[str, Callable[[Path, list[dict[str, np.ndarray]]], np.ndarray]] = {
    ORT_OFF: partial(_session, optimized=False),
    ORT: partial(_session, optimized=True),
    "tflite": _litert,
}
"""Those that run without the pipeline's verdict."""
_ENGINES: Mapping[str, Flags] = {
    ORT_OFF: {},
    ORT: {},
    "tflite": {},
    "openvino": {},
    "executorch": {},
    "iree": {},
    "tvm": {},
    "mnn": {},
    "ncnn": {},
    "qnn": WHOLE,
    "rknn": INT8,
}
QUANTIZED: Mapping[str, Mapping[str, Flags]] = {"digits": _ENGINES, "MLPerf keyword spotting": _ENGINES}
"""By model, how each engine is asked for the graph."""
