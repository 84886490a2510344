"""Rows of Arrow columns as Avro records: `AvroRows`. By fastavro, row by row; it takes pyarrow, too.

With a schema of Avro, or with one that the columns give: integers int and long, floats float and double, text string, bytes bytes, dates
date, times time-millis and time-micros, timestamps timestamp-millis and timestamp-micros (without a time zone local-timestamp-...),
decimals bytes of decimal, lists array, structs record, maps with text for keys map; each a union with null if the column may be null.

Nanoseconds and uint64 are written where no digit is lost by it. Fields that the schema has and the frame has not need a default.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from kafkacore.errors import ConfigError, SerializationError

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class AvroRows:
    """A schema, ready to write with.

    Args:
        given: the schema as a dict or JSON; None makes one of the columns.
        columns: Arrow's struct type.
        prefix: bytes before each record, as a registry's framing has them.
        references: schemas that it uses, as JSON.

    Raises:
        ConfigError: it is no Avro schema, or a column has no type in Avro.
        ImportError: fastavro is not installed.
    """

    def __init__(self, given: Any, columns: Any, prefix: bytes = b"", references: tuple[str, ...] = ()) -> None:
        import fastavro

        self._prefix = prefix
        named: dict[str, Any] = {}
        try:
            for each in references:
                fastavro.parse_schema(json.loads(each), named)
            schema = _record(columns, "Row") if given is None else json.loads(given) if isinstance(given, str) else given
            self._schema = fastavro.parse_schema(schema, named)
        except (ValueError, TypeError, KeyError, AttributeError, fastavro.schema.SchemaParseException) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"value_schema is no Avro schema: {error!r}") from None
        self._plain = _plain(columns)

    def column(self, rows: Any, first_row: int = 0) -> Any:
        """Each struct as a record.

        Args:
            rows: an array of structs.
            first_row: number of the first one, for errors.

        Returns:
            A large_binary array, null where the struct is null.

        Raises:
            SerializationError: a row does not fit the schema.
        """
        import fastavro
        import pyarrow as pa

        try:
            plain = rows.cast(self._plain).to_pylist(**({"maps_as_pydicts": "strict"} if "map<" in str(self._plain) else {}))
        except pa.ArrowInvalid as error:
            raise SerializationError(f"the rows from {first_row:,} on: {error}") from None
        made: list[bytes | None] = []
        for i, row in enumerate(plain):
            if row is None:
                made.append(None)
                continue
            out = io.BytesIO(self._prefix)
            out.seek(0, io.SEEK_END)
            try:
                fastavro.schemaless_writer(out, self._schema, row)
            except Exception as error:  # whatever fastavro meets in a value that does not fit
                raise SerializationError(f"row {first_row + i:,} does not fit the Avro schema: {error!r:.300}") from None
            made.append(out.getvalue())
        return pa.array(made, pa.large_binary())


def _plain(kind: Any) -> Any:
    """The Arrow type whose Python values fastavro takes: it would read a time without a zone as one of the machine's."""
    import pyarrow as pa

    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if is_.is_dictionary(kind):
        return _plain(kind.value_type)
    if is_.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type), each.nullable) for each in kind])
    if is_.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return pa.large_list(_plain(kind.value_type))
    if is_.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if is_.is_time(kind):
        return pa.time64("us")
    return pa.int64() if is_.is_uint64(kind) else kind


def _field(field: Any, path: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise ConfigError(f"column {field.name!r} cannot be a name in Avro, which are letters, digits and _: rename it")
    made = _type(field.type, f"{path}_{field.name}")
    return {"name": field.name, "type": _or_null(made), "default": None} if field.nullable else {"name": field.name, "type": made}


def _or_null(kind: Any) -> Any:
    return kind if kind == "null" else ["null", kind]


def _record(kind: Any, name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(each, name) for each in kind]}


def _type(kind: Any, path: str) -> Any:
    """Avro's type for one of Arrow's."""
    import pyarrow as pa

    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _type(kind.storage_type, path)
    if is_.is_dictionary(kind):
        return _type(kind.value_type, path)
    if is_.is_struct(kind):
        return _record(kind, path)
    if is_.is_map(kind) and (is_.is_string(kind.key_type) or is_.is_large_string(kind.key_type)):
        return {"type": "map", "values": _or_null(_type(kind.item_type, path))}
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return {"type": "array", "items": _or_null(_type(kind.value_type, path))}
    if is_.is_timestamp(kind):
        unit = "millis" if kind.unit in ("s", "ms") else "micros"
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{unit}"}
    if is_.is_time(kind):
        return {"type": "int", "logicalType": "time-millis"} if is_.is_time32(kind) else {"type": "long", "logicalType": "time-micros"}
    if is_.is_decimal(kind) and kind.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = next((avro for check, avro in _simple(is_) if check(kind)), None)
    if found is None:
        raise ConfigError(f"no Avro type for {kind}: cast the column, or name a value_schema")
    return found


def _simple(is_: Any) -> list[tuple[Any, Any]]:
    return [
        (is_.is_null, "null"),
        (is_.is_boolean, "boolean"),
        *((check, "int") for check in (is_.is_int8, is_.is_int16, is_.is_int32, is_.is_uint8, is_.is_uint16)),
        (is_.is_integer, "long"),
        (is_.is_float16, "float"),
        (is_.is_float32, "float"),
        (is_.is_floating, "double"),
        (lambda kind: is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind), "string"),
        (lambda kind: is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind), "bytes"),
        (is_.is_fixed_size_binary, "bytes"),
        (is_.is_date, {"type": "int", "logicalType": "date"}),
    ]
