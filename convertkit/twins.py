"""The float64 twins of an export's ONNX artifacts: made when a comparison first asks, and asked once for each feed."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from convertkit.artifact import Artifact
from convertkit.errors import ConvertKitError
from convertkit.parity.truth import AskTruth, Truth
from convertkit.stage import Feed

if TYPE_CHECKING:
    from convertkit.onnx.twin import Twin


class Twins:
    """Answers of twins, by artifact and feed; ``missing`` says of which artifacts there is none, and why.

    A context manager, which ends the sessions of all twins.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._twins: dict[str, Twin] = {}
        self._answers: dict[tuple[str, str], Truth | None] = {}
        self.missing: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def ask(self, artifact: Artifact) -> AskTruth:
        """What tells the truth about ``artifact``: an answer for each feed, or None where no twin can be had."""

        def truth(feed: Feed) -> Truth | None:
            if artifact.format != "onnx":
                return None
            key = artifact.sha256, _digest(feed)
            if key not in self._answers:
                self._answers[key] = self._asked(artifact, feed)
            return self._answers[key]

        return truth

    def _asked(self, artifact: Artifact, feed: Feed) -> Truth | None:
        from convertkit.onnx.twin import Twin  # few exports need it

        if artifact.sha256 in self.missing:
            return None
        try:
            if artifact.sha256 not in self._twins:
                self._twins[artifact.sha256] = self._open.enter_context(Twin(artifact))
            truth: Truth = self._twins[artifact.sha256].run(feed)
        except ConvertKitError as error:
            self.missing[artifact.sha256] = str(error)
            return None
        return truth


def _digest(feed: Feed) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(feed.items()):
        digest.update(f"{name}:{value.dtype}:{value.shape}:".encode() + value.tobytes())
    return digest.hexdigest()
