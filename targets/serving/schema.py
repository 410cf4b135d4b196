"""Triton's model configuration as protocol buffer messages, made from the table in ``triton_schema.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from convertkit.errors import SourceError

_TABLE = Path(__file__).with_name("triton_schema.toml")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


@cache
def model_config() -> Any:
    """The class of ``ModelConfig`` messages."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    file = descriptor_pb2.FileDescriptorProto(name=_TABLE.name, package=table["package"], syntax="proto3")
    for name, values in table["enums"].items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in table["messages"].items():
        message = file.message_type.add(name=name)
        for field, how in fields.items():
            _add(message, field, how, table)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{table['package']}.ModelConfig"))


def _add(message: Any, name: str, how: dict[str, Any], table: dict[str, Any]) -> None:
    kind = how["type"]
    field = message.field.add(name=name, number=how["number"])
    field.label = _Field.LABEL_REPEATED if how.get("repeated") else _Field.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_ENUM if kind in table["enums"] else _Field.TYPE_MESSAGE
    field.type_name = f".{table['package']}.{kind}"


def read_config(file: Path) -> Any:
    """The configuration in a ``config.pbtxt``; ``SourceError`` where it is not one, or has fields that ours lack."""
    try:
        return text_format.Parse(file.read_text(encoding="utf-8"), model_config()())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise SourceError(f"{file} is not a model configuration of ours: {error}") from error


def written(config: Any) -> str:
    """The text of a ``config.pbtxt``."""
    return str(text_format.MessageToString(config))
