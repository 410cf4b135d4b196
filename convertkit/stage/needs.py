"""What any plugin may say of itself."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class FlagReader(Protocol):
    """A converter or a target that names the flags it has a use for: others are refused instead of ignored.

    A converter tells which of ``--model``, ``--signature``, ``--trust pickle``, ``--trust lambda`` and
    ``--trust pyfunc``, a target which of ``--opset``, ``--io-dtype``, ``--device``, ``--input-layout``,
    ``--description``, ``--label-file`` and ``--normalization``.  One that does not say it may get any of them.  A
    target that names ``--images`` uses it for more than folders of images.
    """

    @property
    def reads(self) -> frozenset[str]: ...


@runtime_checkable
class WithExtra(Protocol):
    """A plugin of ours that needs one of our extras, by its name; ``convertkit targets`` tells whether it is there."""

    @property
    def extra(self) -> str: ...


@runtime_checkable
class WithEngine(Protocol):
    """A target whose compiler or runner lives in the environment of an engine, by that one's name."""

    @property
    def engine(self) -> str: ...
