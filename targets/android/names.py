"""What a package is called: ``com.example.digits`` has the class Digits and is com.example:digits for Maven."""

from __future__ import annotations

import re
from dataclasses import dataclass

from convertkit.targets.android.maven import Coordinates

_PART = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]*")
_WORDS = """abstract annotation as assert boolean break by byte case catch char class companion const constructor
    continue crossinline data default delegate do double dynamic else enum expect external false field file
    final finally float for fun get goto if implements import in infix init inline inner instanceof int
    interface internal is it lateinit long native new noinline null object open operator out outputs override
    package param private property protected public receiver reified return run sealed set setparam short static
    strictfp super suspend switch synchronized tailrec this throw throws transient true try typealias typeof val
    value var vararg void volatile when where while engine labels start"""
RESERVED = frozenset(re.findall(r"\w+", _WORDS))
"""Words that Kotlin or Java keeps, and those that a generated class uses itself."""

_NESTED = frozenset({"category", "detection"})
"""Java has no class inside another of the same name."""
_BESIDE = frozenset({"buffers", "engine", "packed", "pixels", "port", "wav"})


@dataclass(frozen=True, slots=True)
class PackageName:
    """A Kotlin package, from which the other names come."""

    text: str

    @classmethod
    def read(cls, text: str) -> PackageName:
        """``ValueError`` for what is not a package of Java and Kotlin with two parts or more."""
        parts = text.split(".")
        if len(parts) < 2 or not all(_PART.fullmatch(part) for part in parts):
            raise ValueError("expected lower-case words with dots between them, as in com.example.digits")
        if kept := [part for part in parts if part in RESERVED]:
            raise ValueError(f"{kept[0]!r} is a word that Kotlin or Java keeps for itself")
        if parts[-1] in _NESTED:
            raise ValueError(f"the class that it names has a class {parts[-1].capitalize()} inside")
        if parts[-1] in _BESIDE:
            raise ValueError(
                f"beside the class that it names the generated code has a {parts[-1].capitalize()} of its own"
            )
        if parts[-1] == "sample":
            raise ValueError("the sample app beside it is called sample")
        return cls(text)

    def __str__(self) -> str:
        return self.text

    @property
    def short(self) -> str:
        """Its last word, which files are called by."""
        return self.text.rpartition(".")[2]

    @property
    def kotlin_class(self) -> str:
        return "".join(word[:1].upper() + word[1:] for word in self.short.split("_") if word)

    @property
    def folder(self) -> str:
        return self.text.replace(".", "/")

    def coordinates(self, version: str) -> Coordinates:
        """In a Maven repository."""
        group, _, artifact = self.text.rpartition(".")
        return Coordinates(group, artifact, version)


def version(text: str) -> str:
    """A version; ``ValueError`` for what Maven could not take as one."""
    if not _VERSION.fullmatch(text):
        raise ValueError("expected a version such as 1.0.0")
    return text
