"""What keeps enough to be made, and what is not delivered whoever asks for it unless labelled data judges it."""

from __future__ import annotations

from convertkit.errors import ParityError
from convertkit.good_enough import LEAST_DB
from convertkit.quantization.search.quality import Quality
from convertkit.recipe import ExportOptions


def is_enough(quality: Quality, options: ExportOptions) -> bool:
    """With an accuracy gate, what the gate will most likely pass; without one, what is good by itself."""
    if options.max_drop is None:
        return quality.is_good
    return quality.is_bearable and (quality.drop is None or quality.drop <= options.max_drop)


def refuse_ruin(quality: Quality | None, options: ExportOptions) -> None:
    """``ParityError`` below :data:`LEAST_DB`, where no accuracy gate will judge the artifact."""
    if quality is None or quality.is_bearable or options.max_drop is not None:
        return
    given = {"--full-integer": options.full_integer, "--accept-loss": options.accept_loss}
    given["--size-first"] = options.size_first
    insists = next((flag for flag, is_given in given.items() if is_given), "")
    asked = f"--{options.precision} {insists}".strip()
    lines = [f"{asked} keeps {quality.told()}: below {LEAST_DB:.0f} dB nothing is delivered"]
    if insists:
        lines.append(f"  try   --{options.precision} without {insists}, which keeps float what loses most")
    lines.append("  try   --eval with labelled data and --max-drop, which judge by accuracy instead")
    raise ParityError("\n".join(lines))
