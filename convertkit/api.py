"""``convertkit.export``: the command line's main job as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature as signature_of
from os import PathLike, fspath
from pathlib import Path

from convertkit.errors import UsageError
from convertkit.job import export_all
from convertkit.live import as_source
from convertkit.options.export_recipe import read_recipe
from convertkit.options.flags import merged, options_from
from convertkit.recipe import ImageOptions, InputSpec, Normalization, WavOptions
from convertkit.result import Result
from convertkit.watching import watched

_OF_PYTHON = ("example", "progress", "recipe")
"""Keywords that are not options of an export."""


def export(
    source: object = None,
    target: str = "onnxruntime",
    *,
    package: str | None = None,
    example: object = None,
    output: str | PathLike[str] | None = None,
    int8: bool = False,
    int16x8: bool = False,
    fp16: bool = False,
    w8: bool = False,
    w4: bool = False,
    fp8: bool = False,
    bf16: bool = False,
    full_integer: bool = False,
    accept_loss: bool = False,
    size_first: bool = False,
    io_dtype: str = "float32",
    device: str | Sequence[str] = (),
    calib: object = None,
    calib_samples: int | None = None,
    images: str | ImageOptions | None = None,
    wav: str | WavOptions | None = None,
    calib_method: str = "auto",
    eval: object = None,
    metric: str | None = None,
    max_drop: float | None = None,
    strict: bool = False,
    allow_unverified: bool = False,
    prune: float | str | None = None,
    prune_channels: float | str | None = None,
    target_latency: float | None = None,
    low_rank: float | str | None = None,
    budget: str | None = None,
    recover: float | bool | None = None,
    input: str | InputSpec | Sequence[str | InputSpec] = (),
    model: str | None = None,
    input_layout: str = "auto",
    static: Mapping[str, int] | Sequence[str] = (),
    signature: str | None = None,
    description: str | None = None,
    label_file: str | PathLike[str] | None = None,
    compress: bool = False,
    normalization: str | Normalization | Sequence[str | Normalization] = (),
    preprocess: str | None = None,
    postprocess: str | None = None,
    opset: int | None = None,
    trust: str | Iterable[str] = (),
    timeout: float | None = None,
    keep_failed: bool = False,
    force: bool = False,
    passes: Sequence[str] = (),
    seed: int = 0,
    jobs: int = 2,
    cache: str | PathLike[str] | None = None,
    no_cache: bool = False,
    scheduler: str | None = None,
    target_options: Mapping[str, Mapping[str, object]] | None = None,
    verbose: bool = False,
    recipe: str | PathLike[str] | None = None,
    progress: bool | Callable[[str, int, int | None], object] | None = None,
) -> Result:
    """Convert ``source`` for ``target``, verify every step, and return what was delivered.

    Raises a subclass of ``ConvertKitError``, each with its exit code.  Steps and warnings go to the logger
    ``convertkit`` as well.

    Args:
        source: a path, ``pkg.mod:callable``, or a live model: a PyTorch module, a Keras model, a JAX function, an
            ``onnx.ModelProto``.
        target: ``onnxruntime``, ``ort-mobile``, ``openvino``, ``tflite``, ``tflite-micro``, ``ethos-u``, ``qnn``,
            ``litert-npu``, ``executorch``, ``genai``, ``litert-lm``, ``iree``, ``tvm``, ``mnn``, ``ncnn``,
            ``stablehlo``, ``android``, ``ios``, ``coreml`` or ``tensorrt``; ``convertkit.export_all`` takes several.
        package: a package of what ``target`` delivers, for a server or a device: ``triton``, ``kserve``,
            ``torchserve``, ``bentoml``, ``tf-serving``.
        example: inputs that a live model is called with, where it does not know them itself: an array, a tuple of
            positional or a dict of keyword arguments.
        output: the folder to deliver; ``<stem>-<target>`` without one.
        int8: 8-bit integers where they pay; needs ``calib``.
        int16x8: 16-bit activations and 8-bit weights; needs ``calib``.
        fp16: float16 weights.
        w8: 8-bit weights alone.
        w4: 4-bit weights alone.
        fp8: 8-bit floats (E4M3) for weights and activations; needs ``calib``.
        bf16: bfloat16 weights and arithmetic.
        full_integer: every operator in integers, or refuse; with ``int8`` or ``int16x8``.
        accept_loss: keep integers that lose too much, down to 10 dB.
        size_first: with ``w4``, 4 bits for every weight that can have them: slower, and down to 10 dB.
        io_dtype: dtype of a quantized model's inputs and outputs: ``float32``, ``int8``, ``uint8``, ``int16``.
        device: what integers are to pay on, one or several: ``x86``, ``x86-amx``, ``x86-vnni``, ``x86-avx512``,
            ``phone``, ``arm64-a76``, ``arm64-i8mm``, ``arm64-a55``; each has to gain.  ``this`` is measured on this
            machine.
            ONNX Runtime knows ``x86``, ``phone``, the three Arm cores and ``this``.
        calib: calibration data: a path, arrays by input name, or an iterable of dicts, one for each sample.
        calib_samples: use only so many samples, evenly spread.
        images: how images of a folder become inputs, as in ``crop:0.875,bicubic,bgr``.
        wav: how WAV files of a folder become inputs, as in ``rate:16000,mono,window:1s``.
        calib_method: how ranges are measured: ``auto``, ``minmax``, ``moving-average``, ``percentile``,
            ``percentile-99.99``, ``entropy``, ``mse``, ``weighted-mse``.
        eval: labelled data: like ``calib``, with an array called ``label``.
        metric: ``top1``, ``auc``, ``mse`` or ``pkg.mod:func``; by the labels without one.
        max_drop: raise ``GateError`` where the metric loses more points than this.
        strict: raise ``GateError`` where the result is not of the precision that was asked for.
        allow_unverified: deliver, not verified, where outputs are the same for all inputs, or drawn at random.
        prune: share of the weights to set to zero, ``2:4``, or ``auto`` for as many as the gate allows.
        prune_channels: share of the channels to prune, or ``auto`` for as many as the gate allows.
        target_latency: prune channels until a call takes this share of its time by the target's cost table.
        low_rank: two factors for large products: ``auto``, or the share of each one's power that they keep.
        budget: ``size=200KB`` or ``latency=2ms``: the precision, channels and ranks that keep most within it.
        recover: minutes of training on ``calib`` behind what changes numerics, without labels; ``True`` is one.
        input: shapes that the file does not hold: ``NAME:N,3,224,224[:float32]``, one or several.
        model: ``pkg.mod:factory`` of the module that a state_dict belongs to.
        input_layout: ``auto``, ``nchw`` or ``nhwc``.
        static: sizes for named dimensions, ``{"N": 1}``.
        signature: signature of a SavedModel.
        description: what the model does, for the file's metadata.
        label_file: names of the classes, one per line.
        compress: the model deflated in a package for phones; the app decodes it when it first starts.
        normalization: ``INPUT:MEAN/STD`` that the model was trained with, one or several.
        preprocess: steps from a picture of bytes, or from PCM, to the input that become part of the model, as in
            ``image:256,crop:0.875,mean:0,std:255`` or ``audio:16000``.
        postprocess: steps behind an output that become part of the model: ``softmax``, ``argmax``, ``top:5``, or
            ``nms:100`` and what a detector's outputs are, as in ``nms:100,iou:0.45,score:0.25,cxcywh,columns``.
        opset: opset of a delivered ``.onnx``.
        trust: code in the file that may be executed: ``pickle``, ``lambda``, ``pyfunc``.
        timeout: longest time for one call of a framework, in seconds.
        keep_failed: keep an artifact that was not verified, in ``<output>.failed``.
        force: replace what an earlier export wrote into ``output``.
        passes: names of installed passes to run as well.
        seed: seed of generated inputs.
        jobs: how many things are done at once.
        cache: a folder that keeps what was made and verified for the next export; without one, the environment
            variable ``CONVERTKIT_CACHE`` says.
        no_cache: make everything anew.
        scheduler: address of a Dask cluster, ``tcp://HOST:PORT``, whose workers do the work; they have to see the
            folder of ``cache`` and of ``output``.
        target_options: what the target is given for options that it brings itself, such as
            ``{"tensorrt": {"profile": "N=1,8,32"}}``; ``convertkit targets`` lists them.
        verbose: let libraries log and warn.
        recipe: a TOML file of these options; what is given here beside it wins.
        progress: called with what is being done, how much of it is done, and of how much (None where that is not
            known); True shows a bar, False nothing; without it a bar is shown on a terminal and in a notebook.

    """
    given = {name: _plain(name, value) for name, value in locals().items() if name in _DEFAULTS}
    if not isinstance(target, str) or "," in target:
        raise UsageError("export() takes one target; use convertkit.export_all for several")
    chosen = {name: value for name, value in given.items() if not _is_default(name, value)}
    values = merged({} if recipe is None else read_recipe(Path(recipe)), chosen)
    model_given = values.pop("source", None) if source is None else source
    if model_given is None:
        raise UsageError("export() needs a source: a path, pkg.mod:callable or a live model")
    with as_source(model_given, example) as path, watched(progress, verbose=verbose) as (told, on_step):
        return export_all(options_from({**values, "source": path}), told, on_step)[0]


def _plain(name: str, value: object) -> object:
    """Paths as text, and what may be any iterable as a tuple."""
    if isinstance(value, PathLike):
        return fspath(value)
    if name in ("trust", "passes") and isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(value)
    return value


def _is_default(name: str, value: object) -> bool:
    """Whether the value is what the keyword has without one; data, which may be arrays, has None."""
    default = _DEFAULTS[name]
    return value is default or (isinstance(value, str | int | float | tuple) and value == default)


_DEFAULTS: Mapping[str, object] = {
    name: parameter.default
    for name, parameter in signature_of(export).parameters.items()
    if name not in ("source", *_OF_PYTHON)
}
