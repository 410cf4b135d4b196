"""What flags say of a model by the names of its inputs, sizes and classes, held against its interface.

Checked once before any work is done, and again by the stage that uses it: an interface may tell less than the model.
What flags lack is told from here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from convertkit.artifact import TensorSpec
from convertkit.errors import UsageError
from convertkit.formulas import names_in
from convertkit.recipe import ExportOptions, Normalization


def check_dims(wanted: Iterable[str], free: Iterable[str]) -> None:
    """Raise ``UsageError`` for a name of ``--static`` that no dynamic dimension has, nor is made of (``16*H``)."""
    names = set(free)
    parts = {part for name in names for part in names_in(name)}
    for name in wanted:
        if name not in names | parts:
            known = ", ".join(sorted(names)) or "none"
            raise UsageError(f"--static {name}: the model has no dynamic dimension of that name; it has: {known}")


def check_normalization(given: Iterable[Normalization], inputs: Sequence[TensorSpec]) -> None:
    """Raise ``UsageError`` for an input that is none, or for numbers that are none of its channels'."""
    known = {spec.name: spec for spec in inputs}
    for each in given:
        if each.input not in known:
            raise UsageError(f"--normalization {each.input}: no such input; there are: {', '.join(known)}")
        if len(each.mean) not in (1, *known[each.input].shape):
            shape = list(known[each.input].shape)
            raise UsageError(f"--normalization {each.input}: {len(each.mean)} channels, the input has shape {shape}")


def refuse_unit_scale(given: Normalization) -> None:
    """Raise ``UsageError`` for means and deviations of pixels that were scaled to 0..1 before."""
    if not in_unit_scale(given):
        return
    mean, std = (",".join(f"{round(255 * number, 3):g}" for number in each) for each in (given.mean, given.std))
    raise UsageError(
        f"--normalization {given.input}: mean {given.mean[0]:g} and deviation {given.std[0]:g} are for pixels of "
        f"0..1, and those of images are 0..255: write {given.input}:{mean}/{std}"
    )


def in_unit_scale(given: Normalization) -> bool:
    """Whether numbers are such as torchvision's, for pixels of 0..1; 0/1, which leaves pixels alone, is not."""
    within = all(0 <= mean <= 1 for mean in given.mean) and all(std <= 1 for std in given.std)
    return within and not (set(given.mean) == {0.0} and set(given.std) == {1.0})


def labels(path: Path) -> bytes:
    """The file of ``--label-file``, each line ended as on Unix."""
    if not path.is_file():
        raise UsageError(f"--label-file {path}: there is no such file")
    try:
        content = path.read_bytes()
        content.decode("utf-8")
    except OSError as error:
        raise UsageError(f"--label-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--label-file {path} is not UTF-8 text") from error
    return content.replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"


def labelled(path: str, content: bytes, outputs: Sequence[TensorSpec]) -> str:
    """The output whose last axis has one element for each label, or else the one whose integers choose among them."""
    count = content.count(b"\n")
    scores = [spec.name for spec in outputs if spec.shape and spec.shape[-1] == count and not spec.ranked]
    chosen = [spec.name for spec in outputs if spec.classes == count]
    ranked = [spec.name for spec in outputs if spec.shape and spec.shape[-1] == count]
    fitting = scores or chosen or ranked
    if len(fitting) != 1:
        shapes = ", ".join(f"{spec.name} {list(spec.shape)}{_among(spec)}" for spec in outputs)
        found = "no output has" if not fitting else "several outputs have"
        raise UsageError(f"--label-file {path}: {count} labels, and {found} {count} classes; outputs: {shapes}")
    return fitting[0]


def _among(spec: TensorSpec) -> str:
    return "" if spec.classes is None else f" of {spec.classes} classes"


def data_lacks(options: ExportOptions) -> UsageError:
    """The refusal of a precision that needs data and has none."""
    return UsageError(
        f"--{options.precision} measures activation ranges and needs data: --calib PATH; "
        f"a model that is quantized already keeps its integers without --{options.precision}"
    )
