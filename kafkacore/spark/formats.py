"""Values as typed columns: which decoder an options' format needs, and which columns there are when none are named.

No pyspark here and no Kafka; a schema registry is asked where the options name one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kafkacore.decode import avro, ddl, json_schema, protobuf, registry
from kafkacore.decode.base import Decoded, Decoder, Unframed
from kafkacore.decode.csvs import CsvDecoder
from kafkacore.decode.jsons import JsonDecoder
from kafkacore.decode.strings import StringDecoder
from kafkacore.errors import ConfigError
from kafkacore.spark import secrets
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.rows import KAFKA_COLUMNS

__all__ = ["CORRUPT", "Decoded", "Decoder", "decoder", "derived", "kafka_column", "value_fields"]

CORRUPT = "_corrupt"
SPARKS_CORRUPT = "_corrupt_record"
"""What Spark's own readers call it unless an option says otherwise."""
LOCAL = "the schema of option value.schema"


def kafka_column(name: str, options: SourceOptions) -> str | None:
    """Which of Kafka's columns a column of a decoded read is; None when it is a field of the value.

    Args:
        name: of the column: `_topic` is the record's topic. Text has no fields, so there `topic` is it too.
        options: of the read.
    """
    plain = name[1:] if name.startswith("_") else name if options.value_format == "string" else ""
    return plain if plain in KAFKA_COLUMNS and plain != "value" else None


def value_fields(schema: pa.Schema, options: SourceOptions) -> list[Any]:
    """The columns that are fields of the value.

    Raises:
        ConfigError: one of Kafka's columns or `_corrupt` has another type, or a column must not be null.
    """
    found = []
    for each in schema:
        kafka = kafka_column(each.name, options)
        wanted = pa.binary() if each.name == CORRUPT else None if kafka is None else KAFKA_COLUMNS[kafka]
        if each.name == SPARKS_CORRUPT:
            raise ConfigError(f"column {each.name} would always be null: here the undecodable value is in {CORRUPT}, which is BINARY")
        if wanted is None:
            found.append(each)
            _check_nullable(each.name, each)
        elif each.type != wanted:
            raise ConfigError(f"column {each.name} is {ddl.name_of(wanted)}, not {ddl.name_of(each.type)}")
    return found


def _check_nullable(path: str, field: Any) -> None:
    if not field.nullable:
        raise ConfigError(f"column {path} is NOT NULL, and what is absent or cannot be decoded is null: make it nullable")
    kind = field.type
    if pa.types.is_struct(kind):
        for each in kind:
            _check_nullable(f"{path}.{each.name}", each)
    elif pa.types.is_list(kind):
        _check_nullable(f"{path}[]", kind.value_field)
    elif pa.types.is_map(kind):
        _check_nullable(f"{path}{{}}", kind.item_field)


def decoder(options: SourceOptions, fields: Sequence[Any]) -> Decoder:
    """What decodes the values of a read.

    Args:
        options: of the read.
        fields: the columns wanted, from `value_fields`.

    Raises:
        ConfigError: a column that the format or its schema does not have.
    """
    kind = options.value_format
    if kind == "string":
        for each in fields:
            if each.name != "value" or each.type != pa.string():
                raise ConfigError(f"column {each.name}: value.format=string has the column value, a string, and Kafka's own columns")
        return StringDecoder(fields)
    if kind in ("json", "csv"):
        layout = fields
        if options.value_schema is not None:
            layout = value_fields(ddl.parse(options.value_schema, "value.schema"), options)
            types = {each.name: each.type for each in layout}
            for each in fields:
                if types.get(each.name) != each.type:
                    there = f"{ddl.name_of(types[each.name])} there" if each.name in types else "not there"
                    raise ConfigError(f"column {each.name} is {ddl.name_of(each.type)} in the schema; option value.schema: {there}")
        if kind == "csv":
            return CsvDecoder(fields, layout, options.delimiter)
        made = JsonDecoder(fields, keeps_good_fields=options.mode == "permissive")
        return Unframed(made) if options.framed else made
    schemas = None if options.registry_url is None else registry.shared(_where(options))
    lenient = options.on_unusable_schema == "corrupt"
    if kind == "avro":
        writer = None if options.value_schema is None else avro.AvroSchema(options.value_schema, (), LOCAL)
        return avro.AvroDecoder(fields, writer, schemas, options.framed, lenient)
    if kind == "protobuf":
        return protobuf.ProtobufDecoder(fields, _local_message(options), schemas, options.framed, lenient)
    raise AssertionError(kind)


def derived(options: SourceOptions) -> pa.Schema:
    """The columns of a decoded read that names none.

    Raises:
        ConfigError: nothing says what they are.
        errors.KafkaError: the schema registry does not answer.
    """
    kind = options.value_format
    if kind in ("json", "csv"):
        if options.value_schema is not None:
            return ddl.parse(options.value_schema, "value.schema")
        if options.registry_url is None:
            other = ", or schema.registry.url" if kind == "json" else ""
            raise ConfigError(f"value.format={kind} does not name the columns: do so by .schema(...) or the option value.schema{other}")
    if options.value_schema is not None:
        if kind == "avro":
            return _only_values(avro.AvroSchema(options.value_schema, (), LOCAL).derived(), options)
        return _only_values(protobuf.derived(_local_message(options)), options)
    schemas = registry.shared(_where(options))
    found: dict[str, pa.Schema] = {}
    for subject in _subjects(options):
        what = f"subject {subject!r} of the registry"
        latest = schemas.latest(subject, kind.upper(), ": use the option schema.registry.subject, or .schema(...)")
        if kind == "avro":
            found[subject] = avro.AvroSchema(latest.text, latest.references, what).derived()
        elif kind == "json":
            found[subject] = json_schema.derived(latest.text, what)
        else:
            found[subject] = protobuf.derived(protobuf.by_indexes(protobuf.from_registry(latest, what), (0,)))
    first, *others = found.items()
    for subject, schema in others:
        if schema != first[1]:
            raise ConfigError(f"the subjects {first[0]} and {subject} of the registry have different columns: name them by .schema(...)")
    return _only_values(first[1], options)


def _only_values(schema: pa.Schema, options: SourceOptions) -> pa.Schema:
    """A schema that describes values; a field with the name of one of Kafka's columns would be read as that, if the types are the same.

    Raises:
        ConfigError: there is such a field.
    """
    for name in schema.names:
        if name == CORRUPT or kafka_column(name, options) is not None:
            raise ConfigError(f"the value has a field {name}, which here is a column of the record: name the others by .schema(...)")
    return schema


def _where(options: SourceOptions) -> registry.RegistryOptions:
    assert options.registry_url is not None
    return registry.options_of(options.registry_url, options.registry_settings, secrets.WHEN)


def _local_message(options: SourceOptions) -> Any:
    if options.value_schema is None:
        return None
    assert options.value_message is not None
    return protobuf.from_file(options.value_schema, options.value_message)


def _subjects(options: SourceOptions) -> list[str]:
    if options.registry_subject is not None:
        return [options.registry_subject]
    topics = options.subscribe or tuple(dict.fromkeys(topic for topic, _ in options.assign))
    if not topics:
        raise ConfigError("a pattern does not say whose schema the columns are of: use the option schema.registry.subject, or .schema(...)")
    return [f"{topic}-value" for topic in topics]
