"""A model file becomes a model repository for Triton Inference Server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Array, Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.stage import FLOAT32, LOSSY, FeedSource, Stage, Tolerance
from convertkit.targets.serving import requests
from convertkit.targets.serving.backends import ONNXRUNTIME, VERSION, Backend
from convertkit.targets.serving.batching import mixing
from convertkit.targets.serving.configuration import Serving, configuration
from convertkit.targets.serving.containers import triton_containerfile
from convertkit.targets.serving.golden import Call, write_golden
from convertkit.targets.serving.pages import triton_page
from convertkit.targets.serving.schema import written

REPOSITORY = "repository"
USUAL_BATCH = 8
_ROUNDED = replace(LOSSY, reason="Triton's OpenVINO backend computes in bfloat16 where the CPU has it")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user chose: ``max_batch`` None leaves it to what the model can do."""

    name: str
    max_batch: int | None
    delay_us: int
    instances: int
    backend: Backend = ONNXRUNTIME


class PackageTriton:
    """Writes a model repository around a model, with a configuration, a warm-up call and a golden request."""

    name = "triton"
    version = "1"
    accepts = frozenset({"onnxruntime", "tensorrt", "openvino", "tf-serving"})
    produces = "triton"

    def __init__(self, asked: Asked, seed: int, calibration: FeedSource | None) -> None:
        self._asked, self._seed, self._calibration = asked, seed, calibration
        self.tolerance: Tolerance = _ROUNDED if asked.backend.rounds else FLOAT32
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
            "backend": asked.backend.name,
            "accelerator": asked.backend.accelerator,
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``.

        ``Unsupported`` where a batch is asked for and the model's answers would depend on who else asks.
        """
        self._refuse_scalars(source)
        with plugins.runner(source) as runner:
            feed, other = requests.samples(runner, source, self._calibration, self._seed)
            reason = mixing(runner, source, feed, other)
            outputs = runner.run(feed)
        most = self._max_batch(reason)
        asked = self._asked
        serving = Serving(asked.name, asked.backend, most, asked.delay_us, asked.instances)
        call = Call.of(source, asked.name, feed, outputs)
        model = workdir / REPOSITORY / asked.name
        asked.backend.put(source, model / VERSION)
        warmup = _warm_up(call.inputs, model / "warmup")
        (model / "config.pbtxt").write_text(written(configuration(source, serving, warmup)), encoding="utf-8")
        golden = write_golden(call, workdir / "golden")
        (workdir / "Containerfile").write_text(triton_containerfile(asked.backend.image), encoding="utf-8")
        (workdir / "README.md").write_text(triton_page(serving, reason, golden, _dynamic(source)), encoding="utf-8")
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
        usual = 0 if self._asked.backend.pads else USUAL_BATCH
        return 0 if reason else usual if asked is None else asked

    def _refuse_scalars(self, source: Artifact) -> None:
        """Raise ``Unsupported`` for a tensor without sizes where the backend has none."""
        backend = self._asked.backend
        for spec in (*source.inputs, *source.outputs):
            if not spec.shape and not backend.scalars:
                raise Unsupported(
                    f"Triton's {backend.name} backend has no tensors without sizes",
                    subject=spec.name,
                    ways_out=("--target onnxruntime --package triton",),
                )


def _dynamic(source: Artifact) -> dict[str, bool]:
    """Dynamic dimensions, and whether the package of the ``tensorrt`` target has sizes for each."""
    facts = source.path.with_name("constraints.json")
    stated = json.loads(facts.read_text(encoding="utf-8"))["dimensions"] if source.format == "tensorrt" else {}
    names = (dim for spec in source.inputs for dim in spec.shape if isinstance(dim, str))
    return {name: stated.get(name) is not None for name in names}


def _warm_up(given: Mapping[str, Array], folder: Path) -> dict[str, tuple[Sequence[int], str]]:
    """Write each input of the first call as the raw bytes that Triton reads; shape and file name by input."""
    folder.mkdir(parents=True)
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
