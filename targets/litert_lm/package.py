"""The container: a header of 16 KiB blocks that says where the sections lie.

Source: LiteRT-LM, ``schema/core/litertlm_header_schema.fbs`` and its builder.  The builder itself writes a random
number and the time into each file, so only its schema is used: the same sections give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
from litert_lm_builder import litertlm_core as core
from litert_lm_builder import litertlm_header_schema_py_generated as schema

from convertkit.errors import ToolError

MODEL = schema.AnySectionDataType.TFLiteModel
METADATA = schema.AnySectionDataType.LlmMetadataProto
SENTENCEPIECE = schema.AnySectionDataType.SP_Tokenizer
JSON_TOKENIZER = schema.AnySectionDataType.HF_Tokenizer_Zlib
_LONGEST = 0xFFFF
"""Bytes of a block that is stored."""
_VERSION = (core.LITERTLM_MAJOR_VERSION, core.LITERTLM_MINOR_VERSION, core.LITERTLM_PATCH_VERSION)


@dataclass(frozen=True, slots=True)
class Section:
    """Bytes of one kind, and words about them."""

    kind: int
    data: bytes
    items: Mapping[str, str] = field(default_factory=dict)


def model_section(model: bytes) -> Section:
    """What generates; computed in float32 on CPUs, which is what was compared."""
    items = {"model_type": "tf_lite_prefill_decode", "backend_constraint": "cpu", "prefer_activation_type": "fp32"}
    return Section(MODEL, model, items)


def json_tokenizer(text: bytes) -> Section:
    """A ``tokenizer.json``, stored: how bytes are packed, and cut into blocks, depends on the machine's zlib."""
    return Section(JSON_TOKENIZER, struct.pack("<Q", len(text)) + stored(text))


def stored(data: bytes) -> bytes:
    """A zlib stream of blocks that are not packed, each as long as may be.

    Source: RFC 1950 and RFC 1951, 3.2.4.
    """
    blocks = [data[start : start + _LONGEST] for start in range(0, len(data), _LONGEST)] or [b""]
    heads = (struct.pack("<BHH", block is blocks[-1], len(block), len(block) ^ _LONGEST) for block in blocks)
    whole = b"".join(head + block for head, block in zip(heads, blocks, strict=True))
    return b"\x78\x01" + whole + struct.pack(">I", zlib.adler32(data))


def write_package(path: Path, sections: Sequence[Section]) -> None:
    """Write the file."""
    digest = hashlib.sha256()
    for section in sections:
        digest.update(section.data)
    entries = [_text("uuid", str(uuid.UUID(bytes=digest.digest()[:16])))]
    objects = [_object(section) for section in sections]
    head = schema.LiteRTLMMetaDataT(
        systemMetadata=schema.SystemMetadataT(entries=entries), sectionMetadata=schema.SectionMetadataT(objects=objects)
    )
    place = _blocks(core.HEADER_BEGIN_BYTE_OFFSET + len(_packed(head)))
    for section, told in zip(sections, objects, strict=True):
        told.beginOffset, told.endOffset = place, place + len(section.data)
        place = _blocks(told.endOffset)
    packed = _packed(head)
    with path.open("wb") as stream:
        stream.write(core.HEADER_MAGIC_BYTES + struct.pack("<3I", *_VERSION))
        stream.write(b"\0" * (core.HEADER_END_LOCATION_BYTE_OFFSET - stream.tell()))
        stream.write(struct.pack("<Q", core.HEADER_BEGIN_BYTE_OFFSET + len(packed)) + packed)
        for section, told in zip(sections, objects, strict=True):
            stream.seek(told.beginOffset)
            stream.write(section.data)


def section_of(path: Path, kind: int) -> bytes:
    """The first section of a kind; ``ToolError`` where the file is not such a package or has none."""
    with path.open("rb") as stream:
        ends = next((ends for each, *ends in _places(path, stream) if each == kind), None)
        if ends is None:
            raise ToolError(f"{path.name} has no section of kind {kind}")
        stream.seek(ends[0])
        return stream.read(ends[1] - ends[0])


def _places(path: Path, stream: io.BufferedReader) -> list[tuple[int, int, int]]:
    """Of each section its kind, where it begins and where it ends."""
    lead = stream.read(core.HEADER_BEGIN_BYTE_OFFSET)
    if len(lead) < core.HEADER_BEGIN_BYTE_OFFSET or not lead.startswith(core.HEADER_MAGIC_BYTES):
        raise ToolError(f"{path.name} is not a LiteRT-LM package: it does not begin as one")
    (end,) = struct.unpack_from("<Q", lead, core.HEADER_END_LOCATION_BYTE_OFFSET)
    size = path.stat().st_size
    if not core.HEADER_BEGIN_BYTE_OFFSET < end <= size:
        raise ToolError(f"{path.name} ends inside of its header, or its header is broken")
    try:
        head = schema.LiteRTLMMetaData.GetRootAs(stream.read(end - core.HEADER_BEGIN_BYTE_OFFSET), 0)
        table = head.SectionMetadata()
        objects = (table.Objects(place) for place in range(table.ObjectsLength()))
        places = [(each.DataType(), each.BeginOffset(), each.EndOffset()) for each in objects]
    except (struct.error, AttributeError, TypeError, IndexError, ValueError) as error:  # FlatBuffers checks nothing
        raise ToolError(f"{path.name} is not a LiteRT-LM package: its header is broken") from error
    if any(not begin <= behind <= size for _, begin, behind in places):
        raise ToolError(f"{path.name} ends inside of a section")
    return places


def _object(section: Section) -> Any:
    """Offsets are filled in later; any but 0 takes their room."""
    items = [_text(key, value) for key, value in section.items.items()]
    return schema.SectionObjectT(items=items, dataType=section.kind, beginOffset=1, endOffset=1)


def _text(key: str, value: str) -> Any:
    return schema.KeyValuePairT(key=key, value=schema.StringValueT(value), valueType=schema.VData.StringValue)


def _packed(head: Any) -> bytes:
    builder = flatbuffers.Builder(core.BLOCK_SIZE)
    builder.Finish(head.Pack(builder))
    return bytes(builder.Output())


def _blocks(place: int) -> int:
    """The first byte of the next block at or behind ``place``."""
    size: int = core.BLOCK_SIZE
    return -(-place // size) * size
