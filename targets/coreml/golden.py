"""Golden vectors beside a package: inputs with what the evaluator gives for them, and an XCTest that compares there.

Where a package takes other inputs than the model, they are the proof as well: each size that is promised, and images of
whole pixels, are given to the model and to the package.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import ParityError
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.compare import DiffAccumulator
from convertkit.parity.golden import MOST_VECTORS, answered
from convertkit.stage import Feed, FeedSource, Tolerance
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.evaluator.states import fresh
from convertkit.targets.coreml.interface import MOST_PIXEL, combined, images_in, of_pixels, pixels_of
from convertkit.targets.coreml.options import Choices, Image
from convertkit.targets.coreml.package.program import Program, read_package
from convertkit.targets.coreml.runner import decoded, encoded

MOST_BYTES = 1 << 22
"""Of all vectors; the first is there whatever it takes."""
_RELATIVE = {"float32": 1e-3, "float16": 5e-2, "int8": 1e-1}
"""Of the largest output: what the test allows.  Not measured on a device; float16 units round at other places."""
_SWIFT_STATE = (
    ("final class", "@available(iOS 18.0, macOS 15.0, tvOS 18.0, watchOS 11.0, visionOS 2.0, *)\nfinal class"),
    ("        let outputs: [String: Tensor]\n", "        let outputs: [String: Tensor]\n        let begins: Bool\n"),
    (
        "        for vector in golden.vectors {\n",
        "        var state = model.makeState()\n        for vector in golden.vectors {\n"
        "            if vector.begins { state = model.makeState() }\n",
    ),
    ("model.prediction(from: features)", "model.prediction(from: features, using: state)"),
)
"""What a package with state has in its XCTest, beside what every other has."""
_ONE_FEED = 10.0
"""Times the step's own bound: here one feed is judged alone, and nothing says how the model enlarges rounding."""
_LEAST_SNR_DB = 20.0


@dataclass(frozen=True, slots=True)
class Golden:
    """Writes the vectors of the package ``made`` from ``source`` in ONNX; ``ParityError`` where the two disagree."""

    source: Artifact
    made: Artifact
    choices: Choices
    tolerance: Tolerance

    def write(self, calibration: FeedSource | None, seed: int, computes_in: str) -> None:
        """Write ``golden.json`` and ``GoldenTests.swift`` beside the package."""
        program = read_package(self.made.path)
        vectors, size = list[Mapping[str, object]](), 0
        for inputs, outputs in self._answers(program, calibration, seed):
            size += sum(each.nbytes for each in (*inputs.values(), *outputs.values()))
            if len(vectors) < MOST_VECTORS and not (vectors and size > MOST_BYTES):
                begins = {"begins": self._starts_anew(program) or not vectors} if program.states else {}
                vectors.append({"inputs": self._inputs(program, inputs), "outputs": _outputs(outputs), **begins})
        golden: dict[str, object] = {"package": self.made.path.name, "relative": _RELATIVE[computes_in]}
        if self.choices.labels:
            golden["labels"] = list(self.choices.labels)
        folder = self.made.path.parent
        told = json.dumps({**golden, "vectors": vectors}, indent=1, sort_keys=True) + "\n"
        (folder / "golden.json").write_text(told, encoding="utf-8")
        text = (Path(__file__).with_name("swift") / "GoldenTests.swift").read_text(encoding="utf-8")
        (folder / "GoldenTests.swift").write_text(_with_state(text) if program.states else text, encoding="utf-8")

    def _starts_anew(self, program: Program) -> bool:
        """Whether each vector begins with fresh state, as the model is held against it alone; else it goes on."""
        return bool(self.choices.shapes or images_in(program.metadata))

    def _answers(
        self, program: Program, calibration: FeedSource | None, seed: int
    ) -> Iterator[tuple[Mapping[str, Array], Mapping[str, Array]]]:
        """What the package is given and gives, at every size that it promises; state goes from call to call."""
        evaluator, images = Evaluator(program.block), images_in(program.metadata)
        differs = self._starts_anew(program)
        state: dict[str, Array] = {}

        def run(feed: Mapping[str, Array]) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
            inputs = encoded(self.made.inputs, program, feed)
            start = {feature.name: inputs.pop(feature.name) for feature in program.states}
            before = start if differs else {**start, **state}
            outputs = evaluator.run(inputs, state=before)
            state.update(before)
            return inputs, outputs

        with OnnxRunner(self.source) if differs else nullcontext() as model:
            for artifact, samples, most in self._at_sizes(calibration):
                feeds = answered(artifact, samples, seed, run, most)
                for place, (feed, answer) in enumerate(feeds):
                    if model is None:
                        yield answer
                        continue
                    given = self._of_whole_pixels(program, images, feed, seed + place, drawn=samples is None)
                    inputs, outputs = run(given)
                    inputs = {name: np.rint(value) if name in images else value for name, value in inputs.items()}
                    state = fresh(program.block, program.states)
                    outputs = evaluator.run(inputs, state=state)
                    self._held(
                        model.run(self._of_source(given)),
                        decoded(self.made.outputs, program, {**outputs, **state}),
                        given,
                    )
                    yield inputs, outputs

    def _at_sizes(self, calibration: FeedSource | None) -> Iterator[tuple[Artifact, Iterable[Feed] | None, int]]:
        """The interface in the source's layout, samples and their number: once, or for each choice of sizes."""
        plain = replace(self.made, inputs=tuple(_plain(spec, {}) for spec in self.made.inputs))
        if not self.choices.shapes:
            yield plain, calibration, MOST_VECTORS
            return
        for sizes in combined(self.choices.sizes):
            yield replace(plain, inputs=tuple(_plain(spec, sizes) for spec in self.made.inputs)), None, 1

    def _of_whole_pixels(
        self, program: Program, images: Mapping[str, Image], feed: Mapping[str, Array], seed: int, *, drawn: bool
    ) -> dict[str, Array]:
        """``feed`` as images can hold it: drawn anew, or rounded to the nearest pixels."""
        found = dict(feed)
        for spec, (name, _) in zip(self.made.inputs, program.block.inputs, strict=True):
            if image := images.get(name):
                value = spec.encode(feed[spec.name])
                pixels = np.clip(np.rint(pixels_of(image, value)), 0, MOST_PIXEL)
                if drawn:
                    pixels = np.random.default_rng(seed).integers(0, MOST_PIXEL + 1, value.shape).astype(np.float32)
                found[spec.name] = spec.decode(of_pixels(image, pixels)).astype(value.dtype)
        return found

    def _of_source(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """``feed`` in the model's own integers, where Core ML's are int32."""
        kinds = {spec.name: spec.dtype for spec in self.source.inputs}
        return {name: each.astype(kinds[name]) if each.dtype.kind in "iu" else each for name, each in feed.items()}

    def _held(self, wanted: Mapping[str, Array], found: Mapping[str, Array], feed: Mapping[str, Array]) -> None:
        """``ParityError`` where the package does not compute what the model does."""
        for name, want in wanted.items():
            collected = DiffAccumulator(name)
            mismatch = collected.add(want, found[name]).mismatch
            diff = collected.finish()
            bound = self.tolerance.relative
            within = diff.relative <= _ONE_FEED * bound if bound is not None else diff.snr_db >= _LEAST_SNR_DB
            if mismatch or not (within or diff.max_abs == 0):
                shapes = ", ".join(f"{key} {list(value.shape)}" for key, value in feed.items())
                said = mismatch or f"max rel error {diff.relative:.2g}, SNR {diff.snr_db:.1f} dB"
                raise ParityError(f"parity failed after coreml: output {name} for {shapes}: {said}")

    def _inputs(self, program: Program, inputs: Mapping[str, Array]) -> Mapping[str, object]:
        images = images_in(program.metadata)
        return {
            name: _pixels(images[name], value) if name in images else _told(value) for name, value in inputs.items()
        }


def _with_state(text: str) -> str:
    """The XCTest with a state that calls hand on; older compilers know no ``MLState``, so others go without."""
    for plain, stateful in _SWIFT_STATE:
        assert text.count(plain) == 1, plain
        text = text.replace(plain, stateful)
    return text


def _plain(spec: TensorSpec, sizes: Mapping[str, int]) -> TensorSpec:
    """In the source's layout, with these sizes."""
    shape = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.source_shape)
    return replace(spec, shape=shape, perm=())


def _outputs(arrays: Mapping[str, Array]) -> Mapping[str, object]:
    return {
        name: {"type": "text", "text": str(value), "shape": [], "data": ""} if value.dtype == object else _told(value)
        for name, value in arrays.items()
    }


def _pixels(image: Image, value: Array) -> Mapping[str, object]:
    """Rows of pixels from the top, red, green and blue of each, or its brightness, a byte for each."""
    channels = value[0][::-1] if image.colour == "bgr" else value[0]
    rows = np.moveaxis(channels, 0, -1).astype(np.uint8)
    data = base64.b64encode(rows.tobytes()).decode()
    return {"shape": list(rows.shape), "type": "gray" if image.channels == 1 else "rgb", "data": data}


def _told(value: Array) -> Mapping[str, object]:
    """Numbers as little-endian bytes in base64."""
    data = base64.b64encode(value.astype(value.dtype.newbyteorder("<")).tobytes()).decode()
    return {"shape": list(value.shape), "type": value.dtype.name, "data": data}
