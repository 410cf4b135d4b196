"""What the user asked for: one frozen value, whether it came from flags, keywords or a TOML recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Precision = Literal["float32", "fp16", "int8", "int16x8", "w8", "w4", "fp8", "bf16"]
Layout = Literal["auto", "nchw", "nhwc"]
CalibMethod = Literal[
    "auto", "minmax", "moving-average", "percentile", "percentile-99.99", "entropy", "mse", "weighted-mse"
]
Trust = Literal["pickle", "lambda", "pyfunc"]
METRICS = ("top1", "auc", "mse")
"""What ``--metric`` takes beside a function of the user's own."""
RECOVERY_MINUTES = 1.0
"""Of ``--recover`` without a number."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One ``--input NAME:SHAPE[:DTYPE[LO,HI)]``; ``shape`` None where only the dtype was given."""

    name: str
    shape: tuple[int | str, ...] | None = None
    dtype: str | None = None
    value_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """``--images``: how the images of a folder become inputs, ``(pixel - mean) / std`` per channel in the end.

    ``fit`` is ``stretch`` (to the input's height and width), ``crop`` (the centre, ``share`` of the
    shorter side) or ``pad`` (the whole image, the rest filled with ``fill``, 0 to 255).  ``layout``
    tells what the input's shape leaves open; ``mean`` and ``std`` are in units of pixels, one number or
    one for each channel.  Integer inputs get the pixels as they are.
    """

    fit: Literal["stretch", "crop", "pad"] = "stretch"
    share: float = 1.0
    fill: int = 0
    filter: Literal["bilinear", "bicubic", "nearest", "lanczos"] = "bilinear"
    order: Literal["rgb", "bgr"] = "rgb"
    layout: Layout = "auto"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)


@dataclass(frozen=True, slots=True)
class WavOptions:
    """``--wav``: how the WAV files of a folder become inputs.

    ``rate`` in Hz is what the model takes; files of other rates are resampled to it, None takes them as they are where
    all agree.  ``mono`` averages channels.  ``window`` and ``hop`` are lengths in samples, or in seconds where
    ``in_seconds`` names them; without them a window is what the input takes, and the next one begins behind it.
    """

    rate: int | None = None
    mono: bool = False
    window: float | None = None
    hop: float | None = None
    in_seconds: frozenset[str] = frozenset()

    def window_at(self, rate: int) -> int | None:
        """Samples of a window, None where the input decides."""
        return self._samples("window", self.window, rate)

    def hop_at(self, rate: int) -> int | None:
        """Samples from the beginning of one window to that of the next."""
        return self._samples("hop", self.hop, rate)

    def _samples(self, name: str, length: float | None, rate: int) -> int | None:
        if length is None:
            return None
        return max(1, round(length * rate if name in self.in_seconds else length))


@dataclass(frozen=True, slots=True)
class Normalization:
    """One ``--normalization INPUT:MEAN/STD``: the model was trained on ``(x - mean) / std``.

    ``mean`` and ``std`` have one number, or one for each channel.
    """

    input: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


THIS = "this"
"""The device of ``--device`` that is the machine at hand."""


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """Cost tables of a target that were measured on the machine at hand: which it is, when that was, tables as JSON."""

    target: str
    machine: str
    when: str
    tables: str

    @property
    def told(self) -> str:
        """``AMD EPYC 7B13, 2026-11-23 17:20 UTC``."""
        return f"{self.machine}, {self.when}"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Every choice of one export; field names are the flags' with underscores.

    ``source`` is a path or ``pkg.mod:callable``.  ``targets`` and ``output`` are handled by the
    caller that exports one target at a time.  Paths stay strings as the user wrote them.  ``target_options`` may
    hold text or values; :mod:`convertkit.target_options` makes values of them.
    """

    source: str
    targets: tuple[str, ...] = ("onnxruntime",)
    output: str | None = None
    precision: Precision = "float32"
    full_integer: bool = False
    accept_loss: bool = False
    size_first: bool = False
    """4 bits for every weight that can have them, whatever that costs in time and, down to 10 dB, in SNR."""
    io_dtype: Literal["float32", "int8", "uint8", "int16"] = "float32"
    device: tuple[str, ...] = ()
    """What the artifact is to be fast on, by names that the target knows; empty is what the target takes by itself."""
    measured: tuple[MeasuredDevice, ...] = ()
    """The machine that the device ``this`` stands for, by the kernels of each target that measures it.

    No flag: it is measured when an export begins.
    """
    calib: object = None
    calib_samples: int | None = None
    images: ImageOptions = ImageOptions()
    wav: WavOptions = WavOptions()
    calib_method: CalibMethod = "auto"
    eval: object = None
    metric: str | None = None
    max_drop: float | None = None
    strict: bool = False
    allow_unverified: bool = False
    prune: str | None = None
    prune_channels: str | None = None
    target_latency: float | None = None
    """The share of the time, by the target's cost table, that fewer channels bring it down to."""
    low_rank: str | None = None
    """``auto``, or the share of each product's power that two factors have to keep."""
    budget: str | None = None
    """``size=200KB`` or ``latency=2ms``: what chooses precision, channels and ranks."""
    recover: float | None = None
    """Minutes of training behind what changes numerics."""
    inputs: tuple[InputSpec, ...] = ()
    model: str | None = None
    input_layout: Layout = "auto"
    static: tuple[tuple[str, int], ...] = ()
    signature: str | None = None
    description: str = ""
    label_file: str | None = None
    compress: bool = False
    """The model deflated in a package that an app decodes when it first starts."""
    normalization: tuple[Normalization, ...] = ()
    preprocess: str | None = None
    """Steps from a picture of bytes to the input, which become part of the model."""
    postprocess: str | None = None
    opset: int | None = None
    trust: frozenset[Trust] = field(default_factory=frozenset)
    timeout_s: float | None = None
    keep_failed: bool = False
    force: bool = False
    passes: tuple[str, ...] = ()
    verbose: bool = False
    seed: int = 0
    jobs: int = 2
    cache: str | None = None
    """A folder; None is what the environment says, empty is none at all."""
    scheduler: str | None = None
    target_options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By target, what was given for the options that it brings itself, with the names that it gave them."""

    def measured_of(self, target: str) -> MeasuredDevice | None:
        """The machine at hand by the kernels of ``target``; None where these were not measured."""
        return next((each for each in self.measured if each.target == target), None)

    @property
    def quantized(self) -> bool:
        """Whether activations become integers, so that calibration data is needed."""
        return self.precision in ("int8", "int16x8")

    @property
    def lossy(self) -> bool:
        """Whether numerics are changed on purpose, by us; passes of other packages say so themselves."""
        return self.precision != "float32" or self.pruned or self.low_rank is not None

    @property
    def narrowed(self) -> bool:
        """Whether whole channels are removed."""
        return self.prune_channels is not None or self.target_latency is not None

    @property
    def flag_of_channels(self) -> str:
        """The flag that asks for that."""
        return "--prune-channels" if self.prune_channels is not None else "--target-latency"

    @property
    def pruned(self) -> bool:
        """Whether weights or channels are removed."""
        return self.prune is not None or self.narrowed
