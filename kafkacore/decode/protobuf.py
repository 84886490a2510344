"""Protobuf messages as columns, by google.protobuf and a descriptor.

Fields without presence that are not on the wire have their default (0, "", no items), which is what they mean; fields with presence
(messages, `optional`, members of a oneof) are null then. google.protobuf bounds how deep a message nests (100) and never allocates by an
unchecked length.

Source: org.apache.spark.sql.protobuf.{SchemaConverters, ProtobufDeserializer}.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from kafkacore.bounds import MESSAGE_INDEXES
from kafkacore.decode import registry
from kafkacore.decode import values as v
from kafkacore.decode.base import SchemaDecoder
from kafkacore.decode.column_count import ColumnCount
from kafkacore.decode.ddl import name_of, spark_list, spark_map
from kafkacore.errors import ConfigError

DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING = range(1, 10)
GROUP, MESSAGE, BYTES, UINT32, ENUM, SFIXED32, SFIXED64, SINT32, SINT64 = range(10, 19)
TIMESTAMP = "google.protobuf.Timestamp"
SCALARS: dict[int, pa.DataType] = {
    **dict.fromkeys((INT32, SINT32, SFIXED32), pa.int32()),
    **dict.fromkeys((INT64, SINT64, SFIXED64, UINT32, FIXED32), pa.int64()),
    **dict.fromkeys((UINT64, FIXED64), pa.decimal128(20, 0)),
    DOUBLE: pa.float64(),
    FLOAT: pa.float32(),
    BOOL: pa.bool_(),
    STRING: pa.string(),
    ENUM: pa.string(),
    BYTES: pa.binary(),
}
WHOLE = frozenset((INT32, SINT32, SFIXED32, INT64, SINT64, SFIXED64, UINT32, FIXED32, UINT64, FIXED64))

Get = Callable[[Any], Any]
"""Takes a message and gives what Arrow takes for one field of it."""


def from_file(path: str, message: str, options: tuple[str, str] = ("option value.schema", "option value.message")) -> Any:
    """A message's descriptor from a descriptor set (`protoc --include_imports --descriptor_set_out`).

    Args:
        path: of the descriptor set.
        message: the message's name, with its package.
        options: what the caller knows the two by, for messages.

    Raises:
        ConfigError: there is no such file or message.
    """
    from google.protobuf import descriptor_pb2
    from google.protobuf import message as protobuf_message

    try:
        with open(path, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    except OSError as error:
        raise ConfigError(f"{options[0]}: the descriptor set {path} cannot be read in this process: {error.strerror}") from None
    except protobuf_message.DecodeError:
        raise ConfigError(f"{options[0]}: {path} is no descriptor set, as protoc --descriptor_set_out writes") from None
    pool = pool_of(files, f"{options[0]}: {path}")
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = ", ".join(sorted(name for each in files for name in _messages(each)))[:300]
        raise ConfigError(f"{options[1]}: there is no message {message} in {path}; there are {names}") from None


def from_registry(schema: registry.Schema, what: str) -> Any:
    """The file of a registered schema; its messages are found by index.

    Raises:
        ConfigError: the registry has not given it in serialized form, or it lacks what it refers to.
    """
    found: dict[str, Any] = {}
    _collect(schema, "", found, what)
    pool = pool_of(found.values(), what)
    return pool.FindFileByName(list(found)[-1])


def _collect(schema: registry.Schema, name: str, found: dict[str, Any], what: str) -> None:
    from google.protobuf import descriptor_pb2
    from google.protobuf import message as protobuf_message

    for each, referred in schema.references:
        if each not in found:
            _collect(referred, each, found, what)
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, protobuf_message.DecodeError):
        raise ConfigError(
            f"{what}: the registry gives Protobuf schemas as text only (it does not know ?format=serialized), and no compiler is here; "
            "use value.schema with a descriptor set and value.framing=confluent instead"
        ) from None
    file.name = name or file.name or "value.proto"
    found[file.name] = file


def pool_of(files: Iterable[Any], what: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    left = {each.name: each for each in files}
    for name in list(left):
        for other in left[name].dependency:
            if other not in left and other.startswith("google/protobuf/"):
                left.setdefault(other, _well_known(other, descriptor_pb2))
    try:
        while left:
            ready = [name for name, each in left.items() if not any(other in left for other in each.dependency)]
            if not ready:
                raise TypeError(f"files that import each other: {', '.join(left)}")
            for name in ready:
                pool.Add(left.pop(name)) if hasattr(pool, "Add") else pool.AddSerializedFile(left.pop(name).SerializeToString())
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError(f"{what}: {v.reason(error)}") from None
    return pool


def _well_known(name: str, descriptor_pb2: Any) -> Any:
    import importlib

    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return descriptor_pb2.FileDescriptorProto(name=name)
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _messages(file: Any) -> list[str]:
    return [f"{file.package}.{each.name}".lstrip(".") for each in file.message_type]


def by_indexes(file: Any, indexes: Sequence[int]) -> Any:
    """The message that a value's indexes name: the first among the file's, the next among the messages in that one.

    Raises:
        v.Undecodable: the file has no such message.
    """
    found: Any = None
    level = list(file.message_types_by_name.values())
    for each in indexes:
        if not 0 <= each < len(level):
            raise v.Undecodable(f"the schema has no message {list(indexes)}")
        found = level[each]
        level = list(found.nested_types)
    return found


def split_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The message indexes before a value's data.

    Raises:
        v.Undecodable: they break off, or are too many to be.
    """
    from kafkacore.codec import decode_varint

    try:
        count, at = decode_varint(data, 0)
        if count == 0:
            return (0,), data[at:]
        if not 0 < count <= MESSAGE_INDEXES:
            raise v.Undecodable(f"{count} message indexes before a Protobuf value")
        found = []
        for _ in range(count):
            index, at = decode_varint(data, at)
            found.append(index)
    except v.Undecodable:
        raise
    except Exception as error:
        raise v.Undecodable(f"the message indexes before a Protobuf value break off: {error}") from None
    return tuple(found), data[at:]


# ---- columns -------------------------------------------------------------------------------------------------------------------------


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_map(field: Any) -> bool:
    return field.type == MESSAGE and _repeated(field) and field.message_type.GetOptions().map_entry


def derived(message: Any) -> pa.Schema:
    """The columns that a read has when no schema is named.

    Raises:
        ConfigError: a message contains itself, or has very many fields with those of the messages in it.
    """
    count = ColumnCount(f"message {message.full_name}", "name the columns")
    return pa.schema([pa.field(each.name, _arrow(each, each.name, (message.full_name,), count)) for each in message.fields])


def _arrow(field: Any, path: str, above: tuple[str, ...], count: ColumnCount) -> pa.DataType:
    with count.one():
        return _type(field, path, above, count)


def _type(field: Any, path: str, above: tuple[str, ...], count: ColumnCount) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return spark_map(_arrow(entry["key"], path, above, count), _arrow(entry["value"], f"{path}{{}}", above, count))
    if field.type not in (MESSAGE, GROUP):
        kind = SCALARS[field.type]
    elif field.message_type.full_name == TIMESTAMP:
        kind = v.UTC_US
    else:
        name = field.message_type.full_name
        if name in above:
            raise ConfigError(f"field {path}: message {name} contains itself, and columns have an end: name the other columns")
        inner = field.message_type.fields
        kind = pa.struct([pa.field(each.name, _arrow(each, f"{path}.{each.name}", (*above, name), count)) for each in inner])
    return spark_list(kind) if _repeated(field) else kind


def plan(message: Any, fields: Iterable[Any], path: str = "", absent: bool = True) -> list[tuple[str, Get]]:
    """How to get fields of a message.

    Args:
        message: its descriptor.
        fields: Arrow fields, by name.
        path: where the message is, for messages.
        absent: whether a field that the message does not have is null; otherwise it is an error.

    Raises:
        ConfigError: a field cannot become the type asked for.
    """
    found = []
    for each in fields:
        there = message.fields_by_name.get(each.name)
        if there is None and not absent:
            names = ", ".join(one.name for one in message.fields)
            raise ConfigError(f"there is no field {each.name} in the message {message.full_name}; its fields are {names}")
        found.append((each.name, _nothing if there is None else _get(there, each.type, path + each.name)))
    return found


def _nothing(_: Any) -> None:
    return None


def _get(field: Any, wanted: pa.DataType, path: str) -> Get:
    name = field.name
    if _is_map(field):
        entry = field.message_type.fields_by_name
        if not pa.types.is_map(wanted):
            raise _mismatch(path, field, wanted)
        key, item = _one(entry["key"], wanted.key_type, path), _one(entry["value"], wanted.item_type, f"{path}{{}}")
        return lambda message: [(key(each), item(value)) for each, value in getattr(message, name).items()]
    if _repeated(field):
        if not pa.types.is_list(wanted):
            raise _mismatch(path, field, wanted)
        one = _one(field, wanted.value_type, f"{path}[]")
        return lambda message: [one(each) for each in getattr(message, name)]
    one = _one(field, wanted, path)
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _one(field: Any, wanted: pa.DataType, path: str) -> v.Convert:
    """The conversion of one value of a field, or of one item of it."""
    kind = field.type
    if kind in (MESSAGE, GROUP):
        if field.message_type.full_name == TIMESTAMP and pa.types.is_timestamp(wanted):
            return functools.partial(_instant, path)
        if pa.types.is_struct(wanted):
            parts = plan(field.message_type, wanted, f"{path}.")
            return lambda message: {name: get(message) for name, get in parts}
    elif kind == ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        if pa.types.is_string(wanted):
            return lambda number: names.get(number) or str(number)
        if pa.types.is_integer(wanted):
            return _same
    elif kind in WHOLE:
        if pa.types.is_integer(wanted):
            return _same
        if pa.types.is_floating(wanted):
            return float
        if pa.types.is_decimal(wanted):
            return lambda number: v.scaled(path, number, wanted)
    elif (
        (kind in (DOUBLE, FLOAT) and pa.types.is_floating(wanted))
        or (kind == BOOL and pa.types.is_boolean(wanted))
        or (kind == STRING and pa.types.is_string(wanted))
        or (kind == BYTES and pa.types.is_binary(wanted))
    ):
        return _same
    raise _mismatch(path, field, wanted)


def _same(value: Any) -> Any:
    return value


def _instant(path: str, message: Any) -> int:
    if abs(message.seconds) > v.LAST_SECOND or not 0 <= message.nanos < 1_000_000_000:
        raise v.Undecodable(f"field {path}: {message.seconds} s and {message.nanos} ns is no google.protobuf.Timestamp")
    return int(message.seconds * 1_000_000 + message.nanos // 1_000)


def _mismatch(path: str, field: Any, wanted: pa.DataType) -> ConfigError:
    kind = field.message_type.full_name if field.type in (MESSAGE, GROUP) else f"type {field.type}"
    many = "repeated " if _repeated(field) else ""
    owner = field.containing_type.full_name
    return ConfigError(f"field {path} is {many}{kind} in the message {owner} and cannot be read as {name_of(wanted)}")


class ProtobufDecoder(SchemaDecoder):
    """Values that are Protobuf messages, all of one type or each of the one its prefix names."""

    def __init__(
        self, fields: Sequence[Any], message: Any, schemas: registry.Registry | None, framed: bool, lenient: bool = False
    ) -> None:
        """Plans the columns; `message` is the descriptor of all values, None with a registry.

        Raises:
            ConfigError: the message has no such field, or one that cannot become the column.
        """
        super().__init__(fields, schemas, framed, lenient)
        self._read = None if message is None else self._reader(message, absent=False)

    def _reader(self, message: Any, absent: bool) -> Callable[[bytes], Sequence[Any]]:
        from google.protobuf import message_factory
        from google.protobuf.message import DecodeError

        gets = [get for _, get in plan(message, self.fields, absent=absent)]
        parse = message_factory.GetMessageClass(message).FromString
        name = message.full_name

        def read(data: bytes) -> Sequence[Any]:
            try:
                found = parse(data)
            except DecodeError as error:
                raise v.Undecodable(f"no {name}: {error}") from None
            return [get(found) for get in gets]

        return read

    def _row(self, value: bytes) -> Sequence[Any]:
        if not self._framed:
            assert self._read is not None
            return self._read(value)
        number, data = registry.split(value)
        indexes, data = split_indexes(data)
        if self._read is not None:
            return self._read(data)
        reader = self._kept.get((number, indexes))
        if reader is None:
            reader = self._of_registry(number, indexes)
            self._kept[number, indexes] = reader
        return reader(data)

    def _of_registry(self, number: int, indexes: tuple[int, ...]) -> Callable[[bytes], Sequence[Any]]:
        file = self._kept.get(number)
        if file is None:
            file = self._of_schema(number, "PROTOBUF", from_registry)
            self._kept[number] = file
        message = by_indexes(file, indexes)
        return self._usable(number, lambda: self._reader(message, absent=True))
