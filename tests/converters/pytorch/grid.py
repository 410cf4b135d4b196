"""The grid of models, forms and batches; ``python tests/converters/pytorch/grid.py`` writes its page."""

from __future__ import annotations

import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convertkit.artifact import Artifact
from convertkit.errors import ConvertKitError
from convertkit.job import export_all
from convertkit.options.flags import options_from

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[2] / "docs" / "measurements" / "pytorch-grid.md"
MODELS = ("MLP", "CNN", "Control", "BiLSTM", "GRU", "Encoder", "UNet", "GPT", "GPTBuffers")
FORMS = ("traced", "scripted", "pt2", "state_dict")
BATCHES = ("static", "dynamic")
TITLES = {
    "CNN": "CNN + BatchNorm",
    "Control": "while + if on data",
    "BiLSTM": "bidirectional LSTM",
    "Encoder": "TransformerEncoder",
    "UNet": "U-Net",
    "GPT": "GPT, KV cache as arguments",
    "GPTBuffers": "GPT, KV cache in buffers",
}
TOLERANCE = 1e-5
"""Largest difference over the largest reference, as for every lossless step in float32."""


@dataclass(frozen=True, slots=True)
class Cell:
    model: str
    form: str
    batch: str

    @property
    def id(self) -> str:
        return f"{self.model}-{self.form}-{self.batch}"

    @property
    def stateful(self) -> bool:
        return self.model == "GPTBuffers"

    @property
    def may_refuse(self) -> bool:
        """Data-dependent control flow that a trace has thrown away."""
        return self.model == "Control" and self.form == "traced"


@dataclass(frozen=True, slots=True)
class Outcome:
    text: str
    route: str = ""

    @property
    def passed(self) -> bool:
        return self.text == "ok"


CELLS = tuple(Cell(model, form, batch) for model in MODELS for form in FORMS for batch in BATCHES)


def run(cell: Cell, targets: tuple[str, ...], folder: Path) -> dict[str, Outcome]:
    """Write the cell's file, export it once for all targets, and compare each artifact with the eager model."""
    import grid_models
    import torch

    warnings.simplefilter("ignore")
    name = "ControlOps" if (cell.model, cell.form) == ("Control", "pt2") else cell.model
    module = getattr(grid_models, name)().eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    source, model = _written(cell, name, module, folder)
    given = {"source": str(source), "target": targets, "output": str(folder / "out"), "model": model}
    options = options_from({**given, "input": _inputs(cell, module), "static": _static(cell)})
    try:
        results = export_all(options)
    except ConvertKitError as error:
        if len(targets) > 1:  # one target's refusal is not the other's
            apart = [run(cell, (target,), _folder(folder / target)) for target in targets]
            return {target: outcome for each in apart for target, outcome in each.items()}
        return {targets[0]: Outcome(f"refused: {error}")}
    outcomes = {}
    for target, result in zip(targets, results, strict=True):
        fresh = getattr(grid_models, name)().eval()
        route = result.report["steps"][0]["options"]["route"]
        if _is_free(result.artifact) != (cell.batch == "dynamic"):
            outcomes[target] = Outcome(f"the batch is not {cell.batch}", route)
            continue
        try:
            with torch.no_grad():
                worst = _worst(cell, fresh, result.artifact)
        except ConvertKitError as error:
            outcomes[target] = Outcome(f"fails at another size: {error}", route)
            continue
        outcomes[target] = Outcome("ok" if worst <= TOLERANCE else f"differs by {worst:.2g}", route)
    return outcomes


def _is_free(artifact: Artifact) -> bool:
    return any(isinstance(dim, str) for spec in artifact.inputs for dim in spec.source_shape)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _written(cell: Cell, name: str, module, folder: Path) -> tuple[Path, str | None]:
    import torch

    example = module.example_inputs
    if cell.form == "state_dict":
        torch.save(module.state_dict(), folder / "weights.pth")
        return folder / "weights.pth", f"grid_models:{name}"
    if cell.form == "pt2":
        free = (
            cell.batch == "dynamic" and not cell.stateful
        )  # torch.export holds the buffers' size and the batch with it
        dims = tuple({0: torch.export.Dim.AUTO} for _ in example) if free else None
        torch.export.save(torch.export.export(module, example, dynamic_shapes=dims), folder / "model.pt2")
        return folder / "model.pt2", None
    with torch.no_grad():
        made = (
            torch.jit.script(module) if cell.form == "scripted" else torch.jit.trace(module, example, check_trace=False)
        )
    if cell.stateful:
        for buffer in ("keys", "values"):
            getattr(made, buffer).zero_()
    made.save(folder / "model.pt")
    # Only the module that it was traced from can tell that an archive has lost a branch.
    return folder / "model.pt", "grid_models:Control" if cell.may_refuse else None


def _inputs(cell: Cell, module) -> tuple[str, ...]:
    """``--input`` flags: what a scripted archive does not say, and ranges of token ids and positions."""
    names = {"token": "[0,11)", "position": "[0,12)"}
    arguments = list(_argument_names(module))
    flags = []
    for name, value in zip(arguments, module.example_inputs, strict=True):
        if cell.form != "scripted" and name not in names:
            continue
        free = cell.batch == "dynamic"
        shape = ["N" if free else str(value.shape[0]), *map(str, value.shape[1:])]
        flags.append(f"{name}:{','.join(shape)}:{str(value.dtype).removeprefix('torch.')}{names.get(name, '')}")
    return tuple(flags)


def _argument_names(module) -> tuple[str, ...]:
    import inspect

    return tuple(inspect.signature(module.forward).parameters)


def _static(cell: Cell) -> dict[str, int]:
    """``--static``, where neither the file nor ``--input`` fixes the batch."""
    free_by_default = cell.batch == "static" and cell.form != "scripted" and not cell.stateful
    stays = cell.model == "GPT" or (cell.model, cell.form) == ("Control", "pt2")  # given; a loop that holds it
    return {"N": 2} if free_by_default and not stays else {}


def _worst(cell: Cell, module, artifact: Artifact) -> float:
    import torch

    from convertkit import plugins
    from convertkit.state import initial_state, started, state_sizes

    rng = np.random.default_rng(99)
    free = cell.batch == "dynamic"
    sizes = (2, 3) if free else (module.example_inputs[0].shape[0],) * 3
    worst = 0.0
    shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
    state = None
    with plugins.runner(artifact) as runner:
        for turn, size in enumerate((2, 2, 2, 3, 3, 3) if cell.stateful and free else sizes * 2):
            feed = _feed(module, size, turn % 3, rng)
            if state is None or (cell.stateful and free and turn == 3):
                state = started(initial_state(artifact), shapes, state_sizes(shapes, feed))
                for buffer in ("keys", "values") if cell.stateful else ():
                    setattr(module, buffer, torch.zeros(size, *getattr(module, buffer).shape[1:]))
            got = runner.run({**feed, **state})
            expected = module(*(torch.from_numpy(feed[name]) for name in _argument_names(module)))
            flat = [expected] if isinstance(expected, torch.Tensor) else list(expected)
            plain = [value for name, value in got.items() if not name.startswith("next_state.")]
            state = {name.removeprefix("next_"): value for name, value in got.items() if name.startswith("next_state.")}
            for reference, value in zip(flat, plain, strict=True):
                numbers = reference.numpy()
                assert numbers.shape == value.shape
                worst = max(worst, float(np.abs(numbers - value).max() / np.abs(numbers).max()))
    return worst


def _feed(module, size: int, turn: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    feed = {}
    for name, value in zip(_argument_names(module), module.example_inputs, strict=True):
        shape = (size, *value.shape[1:])
        if name == "token":
            feed[name] = rng.integers(0, 11, shape)
        elif name == "position":
            feed[name] = np.full(shape, turn)
        else:
            feed[name] = (rng.standard_normal(shape) + (turn % 2 * 2 - 1)).astype(np.float32)
    return feed


def table(outcomes: dict[tuple[str, Cell], Outcome], targets: tuple[str, ...]) -> str:
    """The grid as Markdown, one table per target."""
    lines = [
        "# PyTorch: what converts",
        "",
        "Generated by `python tests/converters/pytorch/grid.py`; every cell that names a route was exported and",
        f"compared with the eager module at two batch sizes (difference over largest reference at most {TOLERANCE:g}).",
        "A cell names the route to ONNX.",
    ]
    notes: dict[str, int] = {}
    for target in targets:
        lines += ["", f"## {target}", "", "| model | " + " | ".join(f"{f}, {b}" for f in FORMS for b in BATCHES) + " |"]
        lines += ["|" + "---|" * (1 + len(FORMS) * len(BATCHES))]
        for model in MODELS:
            row = [TITLES.get(model, model)]
            for form in FORMS:
                for batch in BATCHES:
                    outcome = outcomes.get((target, Cell(model, form, batch)), Outcome("not measured"))
                    if outcome.text == "not measured":
                        row.append(outcome.text)
                    elif outcome.passed:
                        row.append(f"{outcome.route}")
                    else:
                        row.append(f"refused [{notes.setdefault(outcome.text.splitlines()[0], len(notes) + 1)}]")
            lines.append("| " + " | ".join(row) + " |")
    lines += [""] + [f"[{number}] {text}\n" for text, number in notes.items()]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Run the whole grid and write the table."""
    targets = ("onnxruntime", "tflite")
    outcomes = {}
    for cell in CELLS:
        with tempfile.TemporaryDirectory() as folder:
            found = run(cell, targets, Path(folder))
        for target, outcome in found.items():
            outcomes[target, cell] = outcome
            print(cell.id, target, outcome.route, outcome.text, flush=True)
    DOCUMENT.write_text(table(outcomes, targets), encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
