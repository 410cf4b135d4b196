"""What a Swift package is called: ``KeyWords`` is the module and the class, ``key_words`` its files."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_NAMES = """Any Array Background Bool Buffers Category CoreML CryptoKit Data Detection Double Engine Error Float
    Foundation Int ModelError OnnxRuntimeBindings Outputs Packed Pixels Port Protocol Resources Result SHA256 Self
    String Swift TensorFlowLite Type UInt8 Wav XCTest"""
_TAKEN = frozenset(re.findall(r"\w+", _NAMES))
_WORDS = """as associatedtype break case catch class continue default defer deinit do else engine enum extension
    fallthrough false fileprivate for func guard if import in indirect init inout internal is labels let
    lock nil operator outputs inputs private protocol public repeat rethrows return self start static struct
    subscript super switch throw throws true try typealias var where while"""
RESERVED = frozenset(re.findall(r"\w+", _WORDS))
"""Words that Swift keeps, and those that a generated class uses itself."""


@dataclass(frozen=True, slots=True)
class ModuleName:
    """A Swift module with a class of the same name."""

    text: str

    @classmethod
    def read(cls, text: str) -> ModuleName:
        """``ValueError`` for what cannot be a Swift module and a class in it."""
        if not _NAME.fullmatch(text):
            raise ValueError("expected a capital letter, then letters and digits, as in Digits")
        if text in _TAKEN:
            raise ValueError(f"{text} is a name that the generated code uses")
        return cls(text)

    def __str__(self) -> str:
        return self.text

    @property
    def short(self) -> str:
        """What files are called by."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.text).lower()
