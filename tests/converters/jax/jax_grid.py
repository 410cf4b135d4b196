"""JAX models × forms × batches × artifacts, each exported by the command line and held against JAX itself.

``python tests/converters/jax/jax_grid.py docs/measurements/jax-grid.md`` writes the page.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MODULE = "jax_grid_models"
STEPS, WORDS, HEADS, HEAD = 8, 24, 2, 8
FLOAT_TOLERANCE = 1e-5
"""Largest difference over the largest reference, as for every lossless step in float32."""
LEAST_SNR_DB = 3.0
"""What the pipeline demands of a quantized artifact (``convertkit.stage.LOSSY``)."""
SAMPLES, MEASURED = 24, (2, 5)
"""Calibration batches, and the two batch sizes of a dynamic batch that are measured."""
DRAWS = 20
"""Batches that a quantized artifact is measured on: single ones lie 10 dB apart."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input: sizes behind the batch, dtype, and the values that integers take."""

    sizes: tuple[int, ...]
    dtype: str = "float32"
    below: int | None = None
    batched: bool = True

    def flag(self, name: str, batch: str) -> str:
        shape = ([batch] if self.batched else []) + [str(size) for size in self.sizes]
        return f"{name}:{','.join(shape)}:{self.dtype}" + (f"[0,{self.below})" if self.below else "")


_CACHE = Input((STEPS, HEADS, HEAD))
MODELS: dict[str, tuple[str, dict[str, Input]]] = {
    "linen_cnn": ("Linen CNN", {"x": Input((16, 16, 3))}),
    "nnx_cnn": ("NNX CNN", {"x": Input((16, 16, 3))}),
    "linen_vit": ("Linen ViT", {"x": Input((32, 32, 3))}),
    "nnx_vit": ("NNX ViT", {"x": Input((32, 32, 3))}),
    "linen_lstm": ("Linen LSTM, bidirectional", {"x": Input((9, 6))}),
    "nnx_lstm": ("NNX LSTM", {"x": Input((9, 6))}),
    "linen_gru": ("Linen GRU, bidirectional", {"x": Input((9, 6))}),
    "nnx_gru": ("NNX GRU", {"x": Input((9, 6))}),
    "decoder": (
        "decoder, KV cache as arguments",
        {
            "token": Input((), "int32", WORDS),
            "position": Input((), "int32", STEPS, batched=False),
            "keys": _CACHE,
            "values": _CACHE,
        },
    ),
    "generate": ("decoder sampling in a while_loop", {"token": Input((), "int32", WORDS)}),
    "ranked": ("embedding + top_k + sort", {"ids": Input((9,), "int32", WORDS)}),
}
FORMS = {"callable": "pkg.mod:callable", "jax": "jax.export", "mlirbc": ".mlirbc", "mlir": ".mlir"}
BATCHES = {"static": "3", "free": "N"}
ARTIFACTS = {
    "ONNX": ("onnxruntime", ()),
    "TFLite": ("tflite", ()),
    "ONNX --int8": ("onnxruntime", ("--int8",)),
    "TFLite --int8": ("tflite", ("--int8",)),
}


@dataclass(frozen=True, slots=True)
class Cell:
    model: str
    form: str
    batch: str
    artifact: str

    @property
    def id(self) -> str:
        return "-".join((self.model, self.form, self.batch, self.artifact.replace(" ", "")))

    @property
    def sizes(self) -> tuple[int, ...]:
        return MEASURED if self.batch == "free" else (int(BATCHES["static"]),)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``good`` says whether the cell is as it must be; ``text`` what stands on the page."""

    text: str
    good: bool


def artifacts(form: str) -> tuple[str, ...]:
    """Every form is exported in float; all forms of a model become the same ONNX, so one of them is quantized."""
    return tuple(name for name, (_, flags) in ARTIFACTS.items() if form == "jax" or not flags)


CELLS = tuple(Cell(m, f, b, a) for m in MODELS for f in FORMS for b in BATCHES for a in artifacts(f))


def program(model: str):
    """The model as a function of its inputs, parameters bound."""
    from convertkit.converters.jax.callables import model_function

    found = getattr(importlib.import_module(MODULE), model)
    return model_function(found, list(MODELS[model][1]), model)


@functools.cache
def compiled(model: str):
    """The same, compiled once for each batch size."""
    import jax

    return jax.jit(program(model))


def written(folder: Path, model: str, form: str, batch: str) -> str:
    """The source that the cell's command names; a file is made by ``jax.export`` alone."""
    import jax
    from jax import export

    if form == "callable":
        return f"{MODULE}:{model}"
    path = folder / f"{model}-{batch}.{form}"
    if path.exists():
        return path.name
    free = export.symbolic_shape("N")[0] if batch == "free" else int(BATCHES[batch])
    inputs = MODELS[model][1]
    specs = [jax.ShapeDtypeStruct((free, *each.sizes) if each.batched else (), each.dtype) for each in inputs.values()]
    found = getattr(importlib.import_module(MODULE), model)
    function = found if inspect.signature(found).parameters else _of_x(program(model))
    made = export.export(jax.jit(function))(*specs)
    contents = {"jax": made.serialize, "mlirbc": lambda: made.mlir_module_serialized}
    if form == "mlir":
        path.write_text(str(made.mlir_module()))
    else:
        path.write_bytes(contents[form]())
    return path.name


def _of_x(applied):
    """The same with an argument that has the input's name, from which JAX takes it."""

    def model(x):
        return applied(x)

    return model


def calls(model: str, batch: int, seed: int) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Feeds and what JAX answers: a sequence of steps for the decoder, else one call."""
    rng = np.random.default_rng(seed)
    function = compiled(model)
    inputs = MODELS[model][1]
    carried = {name: np.zeros((batch, *each.sizes), np.float32) for name, each in inputs.items() if each is _CACHE}
    for step in range(STEPS if carried else 1):
        feed = {name: _values(each, batch, rng) for name, each in inputs.items()}
        if carried:
            feed |= {"position": np.int32(step), **carried}
        made = function(*feed.values())
        answer = made if isinstance(made, dict) else {"": made}
        # In the order of JAX's leaves, which is the artifact's.
        answer = {name: np.asarray(answer[name]) for name in sorted(answer)}
        carried = {name: answer[name] for name in carried}
        yield {name: np.asarray(value) for name, value in feed.items()}, answer


def _values(each: Input, batch: int, rng: np.random.Generator) -> np.ndarray:
    shape = (batch, *each.sizes) if each.batched else each.sizes
    if each.below is not None:
        return rng.integers(0, each.below, shape).astype(each.dtype)
    return rng.standard_normal(shape).astype(each.dtype)


def calibration(folder: Path, model: str, batch: str) -> str:
    """An .npz of what the model sees in use, one sample (or one batch of a fixed size) in each row."""
    path = folder / f"{model}-{batch}.npz"
    if not path.exists():
        fixed = int(BATCHES["static"])
        # As many rows for a dynamic batch as for a fixed one.
        size, count = (1, fixed * SAMPLES) if batch == "free" else (fixed, SAMPLES)
        feeds = [feed for seed in range(count) for feed, _ in calls(model, size, seed)][: 4 * count]
        join = np.concatenate if batch == "free" else np.stack
        np.savez(path, **{name: _rows([feed[name] for feed in feeds], join) for name in feeds[0]})
    return path.name


def _rows(values: list[np.ndarray], join) -> np.ndarray:
    return np.stack(values) if values[0].ndim == 0 else join(values)


def convert(folder: Path, cell: Cell) -> Outcome:
    """One export, and the artifact in its own runtime against JAX on feeds that no one has seen."""
    target, flags = ARTIFACTS[cell.artifact]
    source = written(folder, cell.model, cell.form, cell.batch)
    output = folder / cell.id
    arguments = ["export", source, "--target", target, "-o", str(output), "--force", *flags]
    if cell.form == "callable" or any(each.below for each in MODELS[cell.model][1].values()):
        for name, each in MODELS[cell.model][1].items():
            arguments += ["--input", each.flag(name, BATCHES[cell.batch])]
    if flags:
        arguments += ["--calib", calibration(folder, cell.model, cell.batch)]
    done = subprocess.run(
        [sys.executable, "-m", "convertkit", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    if done.returncode:
        return Outcome(_said(done), good=False)
    return _measured(cell, output)


def _said(done: subprocess.CompletedProcess) -> str:
    complaint = done.stderr[done.stderr.find("convertkit: ") :]
    return f"exit {done.returncode}: {' '.join(complaint.removeprefix('convertkit: ').split())}"


def _measured(cell: Cell, folder: Path) -> Outcome:
    """Largest relative difference of a float artifact, least signal-to-noise ratio of an output of a quantized one."""
    quantized = bool(ARTIFACTS[cell.artifact][1])
    names = [each["name"] for each in json.loads((folder / "report.json").read_text())["source"]["outputs"]]
    apart, equal, squares = 0.0, 1.0, {}
    with_ = _onnx if ARTIFACTS[cell.artifact][0] == "onnxruntime" else _tflite
    execute = with_(folder)
    for name, want, value in _answers(cell, names, execute, DRAWS if quantized else 1):
        assert value.shape == want.shape, (name, value.shape, want.shape)
        if want.dtype.kind in "iu":
            equal = min(equal, float(np.mean(value == want)))
            continue
        gap = value.astype(np.float64) - want
        apart = max(apart, float(np.abs(gap).max() / np.abs(want).max()))
        signal, noise = squares.get(name, (0.0, 1e-30))
        squares[name] = (signal + np.square(want, dtype=float).sum(), noise + np.square(gap).sum())
    if quantized:
        snr_db = min((10 * np.log10(signal / noise) for signal, noise in squares.values()), default=np.inf)
        integers = "" if equal == 1 else f", {equal:.0%} of integers"
        return Outcome(f"{snr_db:.0f} dB{integers}", bool(snr_db >= LEAST_SNR_DB))
    good = apart <= FLOAT_TOLERANCE and equal == 1
    return Outcome(
        "equal" if apart == 0 else f"{apart:.0e}" + ("" if equal == 1 else f", {equal:.0%} of integers"), good
    )


def _answers(cell: Cell, names: Sequence[str], execute, draws: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Output by output: its name, what JAX answers, what the artifact does."""
    for draw in range(draws):
        for size in cell.sizes:
            for feed, answer in calls(cell.model, size, 1000 * (draw + 1) + size):
                got = execute(feed)
                yield from ((name, want, got[name]) for name, want in zip(names, answer.values(), strict=True))


def _onnx(folder: Path):
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}

    def execute(feed):
        values = session.run(None, {name: value for name, value in feed.items() if name in taken})
        return dict(zip([each.name for each in session.get_outputs()], values, strict=True))

    return execute


def _tflite(folder: Path):
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(folder / "model.tflite")).get_signature_runner()
    taken = runner.get_input_details()
    return lambda feed: runner(**{name: value for name, value in feed.items() if name in taken})


def measured(cells: Sequence[Cell], results: Path) -> dict[str, Outcome]:
    """Outcomes of cells; those that ``results`` (JSON) holds already are taken from there, others added to it."""
    known = json.loads(results.read_text()) if results.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        for cell in cells:
            if cell.id not in known:
                outcome = convert(Path(place), cell)
                known[cell.id] = [outcome.text, outcome.good]
                results.write_text(json.dumps(known, indent=1))
                print(cell.id, *known[cell.id], flush=True)
    return {name: Outcome(text, good) for name, (text, good) in known.items()}


def page(outcomes: dict[str, Outcome]) -> str:
    """The grid as Markdown: one table for each form."""
    lines = [_HEAD]
    notes: dict[str, int] = {}
    for form, title in FORMS.items():
        heads = [f"{artifact}, {batch}" for artifact in artifacts(form) for batch in BATCHES]
        lines += [f"\n## {title}\n", f"| model | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for model, (name, _) in MODELS.items():
            found = [outcomes.get(Cell(model, form, b, a).id) for a in artifacts(form) for b in BATCHES]
            lines.append(f"| {name} | {' | '.join(_shown(each, notes) for each in found)} |")
    lines += [f"\n[{number}] {text}" for text, number in notes.items()]
    return "\n".join(lines) + "\n"


def _shown(outcome: Outcome | None, notes: dict[str, int]) -> str:
    if outcome is None:
        return "not measured"
    if outcome.good:
        return outcome.text
    return f"**fails** [{notes.setdefault(outcome.text, len(notes) + 1)}]"


_HEAD = """# JAX: what converts

Generated by `python tests/converters/jax/jax_grid.py docs/measurements/jax-grid.md`; do not edit.

Each cell is one export by the command line; the artifact then runs in ONNX Runtime or LiteRT on inputs that the export
has not seen, and is held against JAX. A dynamic batch is measured at 2 and at 5, the decoder over a sequence of 8 calls
that hand its caches on. Float cells show the largest difference relative to the output's largest value, at most 1e-5,
with integer outputs equal; quantized cells the least signal-to-noise ratio of an output over 20 batches of each size,
and the share of equal integers, of the worst of all these outputs, where they are choices (a token, a rank) that the
noise can turn."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--results", type=Path, help="JSON of outcomes: a run that was stopped goes on from there")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cells with TEXT in their names")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        chosen = [cell for cell in CELLS if args.only in cell.id]
        outcomes = measured(chosen, args.results or Path(place) / "outcomes.json")
    args.page.write_text(page(outcomes), encoding="utf-8")
    return int(not all(each.good for each in outcomes.values()))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
