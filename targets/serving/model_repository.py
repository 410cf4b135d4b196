"""A model file becomes a model repository for Triton Inference Server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Array, Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.stage import FLOAT32, FeedSource, Stage, Tolerance
from convertkit.targets.serving import requests
from convertkit.targets.serving.batching import mixing
from convertkit.targets.serving.configuration import Serving, configuration
from convertkit.targets.serving.containers import triton_containerfile
from convertkit.targets.serving.golden import Call, put_model, write_golden
from convertkit.targets.serving.pages import triton_page
from convertkit.targets.serving.schema import written

REPOSITORY = "repository"
VERSION = "1"
USUAL_BATCH = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user chose: ``max_batch`` None leaves it to what the model can do."""

    name: str
    max_batch: int | None
    delay_us: int
    instances: int
    accelerator: str = ""


class PackageTriton:
    """Writes a model repository around an ``.onnx``, with a configuration, a warm-up call and a golden request."""

    name = "triton"
    version = "1"
    accepts = frozenset({"onnxruntime", "tensorrt"})
    produces = "triton"

    def __init__(self, asked: Asked, seed: int, calibration: FeedSource | None) -> None:
        self._asked, self._seed, self._calibration = asked, seed, calibration
        self.tolerance: Tolerance = FLOAT32
        self.diagnosis: Mapping[str, object] | None = None

    @property
    def options(self) -> Mapping[str, object]:
        asked = self._asked
        return {
            "name": asked.name,
            "max_batch": asked.max_batch,
            "delay_us": asked.delay_us,
            "instances": asked.instances,
            "seed": self._seed,
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``.

        ``Unsupported`` where a batch is asked for and the model's answers would depend on who else asks.
        """
        with plugins.runner(source) as runner:
            feed, other = requests.samples(runner, source, self._calibration, self._seed)
            reason = mixing(runner, source, feed, other)
            outputs = runner.run(feed)
        most = self._max_batch(reason)
        asked = self._asked
        serving = Serving(asked.name, "onnxruntime", most, asked.delay_us, asked.instances, asked.accelerator)
        call = Call.of(source, asked.name, feed, outputs)
        model = workdir / REPOSITORY / asked.name
        put_model(source.path, model / VERSION)
        warmup = _warm_up(call.inputs, model / "warmup")
        (model / "config.pbtxt").write_text(written(configuration(source, serving, warmup)), encoding="utf-8")
        golden = write_golden(call, workdir / "golden")
        (workdir / "Containerfile").write_text(triton_containerfile(), encoding="utf-8")
        (workdir / "README.md").write_text(triton_page(serving, reason, golden), encoding="utf-8")
        self.diagnosis = {"serving": {"max_batch": most, "why_no_batch": reason}}
        path = workdir / REPOSITORY
        made_by = f"{self.name} {self.version}"
        return replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)

    def _max_batch(self, reason: str) -> int:
        """Samples in a call: what was asked for, else a usual number; 0 where ``reason`` says why not."""
        asked = self._asked.max_batch
        if reason and asked:
            raise Unsupported(
                f"the server cannot put requests together: {reason}",
                ways_out=("--triton-max-batch 0", "a model with a dynamic batch that keeps its samples apart"),
            )
        return 0 if reason else USUAL_BATCH if asked is None else asked


def _warm_up(given: Mapping[str, Array], folder: Path) -> dict[str, tuple[Sequence[int], str]]:
    """Write each input of the first call as the raw bytes that Triton reads; shape and file name by input."""
    folder.mkdir()
    found = dict[str, tuple[Sequence[int], str]]()
    for place, (name, value) in enumerate(given.items()):
        (folder / f"input{place}").write_bytes(_raw(value))
        found[name] = (value.shape, f"input{place}")
    return found


def _raw(value: Array) -> bytes:
    """Little-endian elements; strings with their length before each, 4 bytes."""
    if value.dtype.kind not in "OSU":
        return value.astype(value.dtype.newbyteorder("<"), order="C").tobytes()
    texts = [str(each).encode() for each in value.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


_: type[Stage] = PackageTriton
