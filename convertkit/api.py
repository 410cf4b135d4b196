"""``convertkit.export``: the command line's main job as a function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath

from convertkit.errors import UsageError
from convertkit.job import Result, export_all
from convertkit.options.flags import options_from
from convertkit.recipe import ImageOptions, InputSpec, Normalization, WavOptions


def export(
    source: str | PathLike[str],
    target: str = "onnxruntime",
    *,
    output: str | PathLike[str] | None = None,
    int8: bool = False,
    int16x8: bool = False,
    fp16: bool = False,
    w8: bool = False,
    w4: bool = False,
    full_integer: bool = False,
    accept_loss: bool = False,
    io_dtype: str = "float32",
    calib: object = None,
    calib_samples: int | None = None,
    images: str | ImageOptions | None = None,
    wav: str | WavOptions | None = None,
    calib_method: str = "auto",
    eval: object = None,
    metric: str | None = None,
    max_drop: float | None = None,
    strict: bool = False,
    prune: float | str | None = None,
    prune_channels: float | None = None,
    input: str | InputSpec | Sequence[str | InputSpec] = (),
    model: str | None = None,
    input_layout: str = "auto",
    static: Mapping[str, int] | Sequence[str] = (),
    signature: str | None = None,
    description: str | None = None,
    label_file: str | PathLike[str] | None = None,
    normalization: str | Normalization | Sequence[str | Normalization] = (),
    opset: int | None = None,
    trust: str | Iterable[str] = (),
    timeout: float | None = None,
    keep_failed: bool = False,
    force: bool = False,
    passes: Sequence[str] = (),
    seed: int = 0,
) -> Result:
    """Convert ``source`` for ``target``, prove every step, and return what was delivered.

    Keywords are the flags of ``convertkit export``; ``calib`` and ``eval`` also take arrays by input
    name or any iterable of feeds.  Raises a subclass of ``ConvertKitError``, each with its exit code.
    """
    if not isinstance(target, str):
        raise UsageError("export() takes one target; use convertkit.export_all for several")
    given = {
        "source": fspath(source),
        "target": target,
        "output": None if output is None else fspath(output),
        "int8": int8,
        "int16x8": int16x8,
        "fp16": fp16,
        "w8": w8,
        "w4": w4,
        "full_integer": full_integer,
        "accept_loss": accept_loss,
        "io_dtype": io_dtype,
        "calib": _path(calib),
        "calib_samples": calib_samples,
        "images": images,
        "wav": wav,
        "calib_method": calib_method,
        "eval": _path(eval),
        "metric": metric,
        "max_drop": max_drop,
        "strict": strict,
        "prune": None if prune is None else str(prune),
        "prune_channels": prune_channels,
        "input": input,
        "model": model,
        "input_layout": input_layout,
        "static": static,
        "signature": signature,
        "description": description,
        "label_file": None if label_file is None else fspath(label_file),
        "normalization": normalization,
        "opset": opset,
        "trust": trust if isinstance(trust, str) else tuple(trust),
        "timeout": timeout,
        "keep_failed": keep_failed,
        "force": force,
        "passes": tuple(passes),
        "seed": seed,
    }
    return export_all(options_from(given))[0]


def _path(data: object) -> object:
    return fspath(data) if isinstance(data, PathLike) else data
