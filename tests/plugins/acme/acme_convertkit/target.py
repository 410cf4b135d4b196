"""The target: light to import, since ``convertkit export --help`` asks every installed target for its options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from convertkit.errors import Unsupported
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


def identifier(text: str) -> str:
    """A name of C, for the include guard."""
    if not re.fullmatch(r"[A-Za-z_]\w*", text):
        raise ValueError("expected a name of C, for example MODEL_H")
    return text


class HeaderTarget:
    """Delivers ``model.h``; ``wrong`` turns a matrix around, as a careless layout change would."""

    summary = "C header with float weights"
    precisions = ("float32",)
    runs_here = True
    options = (
        TargetOption("guard", identifier, "Name of the include guard", metavar="NAME"),
        TargetOption("license", Path, "A text that begins the file, as a comment"),
    )

    def __init__(self, name: str, *, wrong: bool) -> None:
        self.name = name
        self._wrong = wrong

    def profile(self, options: ExportOptions) -> QuantProfile:
        raise Unsupported("C headers hold float weights only")

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        from acme_convertkit.header import HeaderStage

        chosen = context.target_options
        return (HeaderStage(chosen["guard"], chosen["license"], wrong=self._wrong),)


target = HeaderTarget("c-header", wrong=False)
wrong_target = HeaderTarget("c-header-wrong", wrong=True)
