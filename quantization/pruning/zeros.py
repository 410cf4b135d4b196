"""``--prune``: zeros in the weights, the rest fitted on calibration data where there is some.

The zeros stay in dense tensors: files shrink when compressed, and the parity of later steps is measured as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported, UsageError
from convertkit.onnx.edit import drop_unused
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.quantization.calibrate.split import split
from convertkit.quantization.effect import held_out
from convertkit.quantization.graph.reordered import forget_order
from convertkit.quantization.graph.step import LossyStep
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.pruning.budgets import by_magnitude
from convertkit.quantization.pruning.generalization import gap, is_seen, notes, ways_out
from convertkit.quantization.pruning.gradual import pruned_gradually
from convertkit.quantization.pruning.joint import JointFit
from convertkit.quantization.pruning.order import better_orders, reordered
from convertkit.quantization.pruning.patterns import AUTO, Pattern, neighbours, pattern
from convertkit.quantization.pruning.products import Product, find_products, total
from convertkit.quantization.pruning.removal import PruneChannels
from convertkit.quantization.pruning.sparsify import Found, Sparsifier, fits, fitted_samples
from convertkit.quantization.pruning.surgery import explicit_biases
from convertkit.quantization.search.floor import is_enough
from convertkit.quantization.search.quality import Quality
from convertkit.quantization.search.reference import Reference
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext, FeedSource, Stage
from convertkit.state import initial_state

_FINEST = 0.02
"""``--prune auto`` finds the share to this much."""
_SHARES = (0.3, 0.97)
"""The least share that is worth its while, and the most that is tried."""
_WIDER = ("the float32 model, and --fp16 or --bf16 beside --prune",)
"""Instead of a model whose weights have 16 bits."""

Judged = tuple[ir.Model, Sequence[Found], Quality]


@dataclass(slots=True)
class PruneWeights(LossyStep):
    """Sets weights to zero: a share of all, N of M neighbours, or where ``wanted`` is None what the gate allows."""

    wanted: Pattern | None
    text: str
    calibration: FeedSource | None = None
    choices: ExportOptions = field(kw_only=True)

    name = "prune"
    version = "8"

    @property
    def options(self) -> Mapping[str, object]:
        return {"prune": self.text, "calibrated": self.calibration is not None}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Write the pruned model; ``diagnosis`` holds each layer's share of zeros and SNR, and the held-out quality."""
        model = load_model(source.path)
        prepare(model)
        explicit_biases(model.graph)
        products = find_products(model.graph)
        self._refuse(products, model.graph)
        if self.calibration is None:
            assert self.wanted is not None
            found: Sequence[Found] = plainly_pruned(model.graph, products, self.wanted)
            quality, apart = None, None
        else:
            (model, found, quality), apart = self._fitted(model, source, self.calibration)
        if self.choices.recover is None:  # else training compares values
            forget_order(model.graph)
        products = find_products(model.graph)
        zeros = sum(each.zeros * product.size for each, product in _aligned(found, products))
        share = zeros / total(products)
        seen = is_seen(quality, self.calibration)
        told = f"{share:.1%} of the weights of {len(found)} layers are zero"
        told = told if quality is None else f"{told}; kept are {quality.told(seen=seen)}"
        self.diagnosis = {
            "layers": [asdict(each) for each in found],
            "zeros": share,
            "held_out": held_out(quality, is_all=seen),
            "notes": [told, *notes(apart)],
            "ways_out": ways_out(apart),
        }
        return save_model(model, workdir / "pruned.onnx", f"{self.name} {self.version}", source.initial_state)

    def _refuse(self, products: Sequence[Product], graph: ir.Graph) -> None:
        if not products:
            raise Unsupported(
                "--prune finds no float32 weight of a convolution, matrix product or recurrent layer",
                ways_out=_WIDER if any(_is_half(each) for each in graph.initializers.values()) else (),
            )
        if self.wanted is not None and self.wanted.of and not any(fits(each, self.wanted) for each in products):
            raise Unsupported(
                f"--prune {self.text}: no layer sums over a multiple of {self.wanted.of} channels",
                ways_out=("--prune with a share, such as 0.5",),
            )

    def _fitted(self, model: ir.Model, source: Artifact, calibration: FeedSource) -> tuple[Judged, str | None]:
        """The pruned model, and what fitted and held-out samples keep where these are far apart."""
        measuring, judging = split(calibration)
        state, seed = initial_state(source), self.choices.seed
        judge = _Judge(JointFit(model.clone(), list(measuring), judging, state, seed, self.progress))
        self.progress.status("measuring layers")
        made = self._nearest(model, judge)
        if self.choices.recover is not None:  # training tells its own
            return made, None
        return made, gap(judge.fit.original, made[0], fitted_samples(model, judge.fit.feeds), made[2], state)

    def _nearest(self, model: ir.Model, judge: _Judge) -> Judged:
        if self.wanted is None:
            return self._as_much_as_is_borne(model, judge)
        worker = judge.worker(model)
        if self.wanted.of:
            return self._of_neighbours(self.wanted, judge, worker)
        at_once = judge.fitted(*worker.pruned(self.wanted, worker.curves()))
        gradual = pruned_gradually(model, self.wanted, judge.fit)
        return at_once if gradual is None else nearer(at_once, judge.fitted(*gradual))

    def _of_neighbours(self, wanted: Pattern, judge: _Judge, worker: Sparsifier) -> Judged:
        """With channels as they are, and in an order in which neighbours hold more of what counts."""
        as_they_are = judge.fitted(*worker.pruned(wanted, {}))
        orders = better_orders(worker.model, wanted, worker.scores())
        if not orders:
            return as_they_are
        fit = replace(judge.fit, original=reordered(worker.model, orders))
        other = _Judge(fit)
        made, found, _ = other.fitted(*other.worker(fit.original).pruned(wanted, {}))
        return nearer(as_they_are, judge.plain(made, found))

    def _as_much_as_is_borne(self, model: ir.Model, judge: _Judge) -> Judged:
        """The largest share that keeps the outputs; from each that does, the next one is reached."""
        worker = judge.worker(model)
        curves = worker.curves()
        low, high = _SHARES
        best = None
        while high - low > _FINEST or best is None:
            share = low if best is None and high - low <= _FINEST else (low + high) / 2
            tried = judge.plain(*worker.pruned(Pattern(share), curves))
            if not is_enough(tried[2], self.choices):
                tried = judge.fitted(*tried[:2])
            if is_enough(tried[2], self.choices):
                low, best = share, tried
                if judge.fit.steps:
                    worker = judge.worker(tried[0])
                    curves = worker.curves()
            elif share == low:
                told = tried[2].told(seen=is_seen(tried[2], self.calibration))
                raise Unsupported(
                    f"--prune auto: even {share:.0%} of the weights cost too much, {told}",
                    ways_out=("more calibration data", "--max-drop with more points", "--prune-channels"),
                )
            else:
                high = share
        return best


class _Judge:
    """Held-out samples that pruned models are judged on, and the fit of all their layers together."""

    def __init__(self, fit: JointFit) -> None:
        self.fit = fit
        self._reference = Reference(fit.original.clone(), fit.held_out, fit.state)

    def worker(self, model: ir.Model) -> Sparsifier:
        """What prunes copies of ``model`` further."""
        return Sparsifier(model.clone(), self.fit.feeds, self.fit.state, self.fit.seed, self.fit.progress)

    def plain(self, pruned: ir.Model, found: Sequence[Found]) -> Judged:
        """The model as it is."""
        return pruned, found, self._reference.quality(pruned.clone())

    def fitted(self, pruned: ir.Model, found: Sequence[Found]) -> Judged:
        """The model with all its layers fitted together, where its outputs are nearer to the original's."""
        before, fitted = self.plain(pruned, found), pruned.clone()
        if not self.fit.run(fitted):
            return before
        return nearer(before, self.plain(fitted, found))


def nearer(one: Judged, other: Judged) -> Judged:
    """Whose outputs are nearer to the original's, in front of a softmax; the first where both are alike."""
    return other if other[2].before_db > one[2].before_db else one


def plainly_pruned(graph: ir.Graph, products: Sequence[Product], wanted: Pattern) -> tuple[Found, ...]:
    """Prune by magnitude alone, in place."""
    rows = {product: product.rows for product in products if not wanted.of or fits(product, wanted)}
    if wanted.of:
        kept = {product: neighbours(np.abs(array), wanted, product.taps) for product, array in rows.items()}
    else:
        kept = by_magnitude(rows, wanted.share)
    found = []
    for product, array in rows.items():
        made = np.where(kept[product], array, 0.0)
        product.store(made)
        found.append(Found(product.name, float((made == 0).mean())))
    drop_unused(graph)
    return tuple(found)


def _aligned(found: Sequence[Found], products: Sequence[Product]) -> list[tuple[Found, Product]]:
    by_name = {product.name: product for product in products}
    return [(each, by_name[each.name]) for each in found]


def build(context: BuildContext) -> Stage | None:
    """The stage for ``--prune``, ``--prune-channels`` or ``--target-latency``."""
    options = context.options
    if options.prune is not None and options.narrowed:
        raise UsageError(f"--prune and {options.flag_of_channels} exclude each other")
    if options.narrowed:
        return PruneChannels(
            options.prune_channels, options.target_latency, context.target.profile(options), context.calibration,
            choices=options, progress=context.progress,
        )  # fmt: skip
    if options.prune is None:
        return None
    if options.prune == AUTO and context.calibration is None:
        raise UsageError("--prune auto measures what the model keeps: give it --calib PATH")
    return PruneWeights(
        pattern(options.prune), options.prune, context.calibration, choices=options, progress=context.progress
    )


def _is_half(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
