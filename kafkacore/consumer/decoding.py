"""Decoded values for `KafkaConsumer.read`: what its arguments ask for, the decoder, and batches with the values' fields as columns.

    fields of the value, _key, _topic, _partition, _offset, _timestamp [, _headers] [, _corrupt]

What belongs to the record has an underscore, as in kafkacore's Spark source, so that a value may have a field `key` or `timestamp`. It is
most of the memory of a frame of small values: a read may choose what of it comes along.

Records with plain JSON in flat columns go from the fetched bytes into the batch in one compiled pass (`plain`). A batch with a value about
which that has a doubt goes the general way, as all other formats do, with the same columns.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacore import errors
from kafkacore.records import json_batch

if TYPE_CHECKING:
    from kafkacore.records import RecordColumns

RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
CORRUPT = "_corrupt"
ON_ERROR = ("raise", "null", "skip")
TEXTS = {"string": "u", "large_string": "U", "string_view": "v"}
"""What text columns may be, by Arrow's names; the letters of the compiled pass."""


class Decoding:
    """What values are to become; asks nobody before `columns`.

    Args:
        topics: that are read: a registry's subjects are named after them.
        json, avro, protobuf, registry, on_error, headers, record_columns, text: as `KafkaConsumer.read` takes them.

    Attributes:
        inferred: the columns come out of the first values.
        on_error: what becomes of a value that cannot be decoded.
        headers: there is a column of them.
        keys: there is a column of keys.
        skipped: values that could not be decoded, and were left out.

    Raises:
        errors.UsageError: arguments that exclude each other.
        errors.ConfigError: a schema that cannot be read.
    """

    def __init__(
        self,
        topics: Sequence[str],
        json: Any,
        avro: Any,
        protobuf: Any,
        registry: Any,
        on_error: str,
        headers: bool,
        record_columns: bool | Iterable[str] = True,
        text: str = "string",
    ) -> None:
        given = {name: each for name, each in (("json", json), ("avro", avro), ("protobuf", protobuf)) if each is not None}
        if len(given) > 1:
            raise errors.UsageError(f"values have one format, not {' and '.join(given)}")
        if not given:
            raise errors.UsageError("registry= says where schemas are: say the format, too, as json=True, avro=True or protobuf=True")
        if on_error not in ON_ERROR:
            raise errors.UsageError(f"on_error is one of {', '.join(ON_ERROR)}, not {on_error!r}")
        if text not in TEXTS:
            raise errors.UsageError(f"text is one of {', '.join(TEXTS)}, not {text!r}")
        [(self._format, self._wanted)] = given.items()
        if self._wanted is True and registry is None:
            raise errors.UsageError(f"{self._format}=True takes the schema from a registry: name it by registry=, or give the schema")
        self._topics = list(dict.fromkeys(topics))
        self._registry = registry
        self.on_error = on_error
        self.headers = headers
        self._names = (*_chosen(record_columns), "headers") if headers else _chosen(record_columns)
        self.keys = "key" in self._names
        self._text = text
        self._plain: tuple[tuple[bytes, ...], str] | None = None
        self._letters: tuple[Any, str] | None = None           # the kinds for a schema
        self.skipped = 0
        self.inferred = self._format == "json" and isinstance(self._wanted, str) and self._wanted == "infer"
        self._decoder: Any = None
        if not self.inferred:
            self._prepare(self._columns())

    def infer(self, values: Iterable[bytes]) -> None:
        """Takes the columns from a sample of values."""
        from kafkacore.decode.infer import inferred

        if self._decoder is None:
            self._prepare(inferred(values))

    @property
    def ready(self) -> bool:
        """Whether the columns are known."""
        return self._decoder is not None

    # -- which columns ------------------------------------------------------------------------------------------------------------

    def _columns(self) -> Any:
        """The columns of the values, as a `pyarrow.Schema`."""
        from kafkacore.decode.wanted import columns_of

        wanted = self._wanted
        if wanted is True:
            return self._registered()
        if hasattr(wanted, "__arrow_c_schema__"):
            if self._format != "json" and self._registry is None:
                raise errors.UsageError(f"{self._format} is written with a schema: give that, or the registry that has it")
            return columns_of(wanted, self._format)
        if self._format == "json":
            return columns_of(wanted, "json")
        if self._registry is not None:
            raise errors.UsageError(f"the registry has the schemas: use {self._format}=True, or an Arrow schema to choose columns")
        if self._format == "avro":
            return self._avro().derived()
        from kafkacore.decode import protobuf

        return protobuf.derived(self._message())

    def _registered(self) -> Any:
        """The columns of the newest schemas of the topics' subjects."""
        from kafkacore.decode import avro, json_schema, protobuf

        found: dict[str, Any] = {}
        for topic in self._topics:
            subject = f"{topic}-value"
            what = f"subject {subject!r} of the registry"
            hint = f": name the columns by {self._format}=pyarrow.schema(...)"
            latest = self._schemas().latest(subject, self._format.upper(), hint)
            if self._format == "avro":
                found[subject] = avro.AvroSchema(latest.text, latest.references, what).derived()
            elif self._format == "json":
                found[subject] = json_schema.derived(latest.text, what, "by json={name: type}")
            else:
                found[subject] = protobuf.derived(protobuf.by_indexes(protobuf.from_registry(latest, what), (0,)))
        (first, schema), *others = found.items()
        for subject, other in others:
            if other != schema:
                fault = f"the subjects {first} and {subject} of the registry have different columns: read one after the other"
                raise errors.ConfigError(fault)
        return schema

    def _schemas(self) -> Any:
        from kafkacore.decode import registry

        given = self._registry
        if not isinstance(given, (str, registry.RegistryOptions)):
            raise errors.UsageError(f"registry is a URL or a kafkacore.decode.registry.RegistryOptions, not {given!r}")
        return registry.shared(registry.RegistryOptions(given, called="registry") if isinstance(given, str) else given)

    def _avro(self) -> Any:
        from kafkacore.decode.avro import AvroSchema

        text = self._wanted if isinstance(self._wanted, str) else json_module.dumps(self._wanted)
        return AvroSchema(text, (), "the schema of avro=")

    def _message(self) -> Any:
        """The descriptor of a message: of a generated class, or out of a descriptor set."""
        from kafkacore.decode import protobuf

        if isinstance(self._wanted, tuple):
            if len(self._wanted) != 2:
                raise errors.UsageError(f"protobuf is a generated class, or (descriptor set file, message name), not {self._wanted!r}")
            return protobuf.from_file(str(self._wanted[0]), str(self._wanted[1]), ("protobuf", "protobuf"))
        found = getattr(self._wanted, "DESCRIPTOR", self._wanted)
        if not hasattr(found, "fields_by_name"):
            raise errors.UsageError(f"protobuf is a generated class, or (descriptor set file, message name), not {self._wanted!r}")
        return found

    # -- decoding -----------------------------------------------------------------------------------------------------------------

    def _prepare(self, schema: Any) -> None:
        from kafkacore.decode.arrow_types import json_decoder
        from kafkacore.decode.avro import AvroDecoder
        from kafkacore.decode.base import Unframed
        from kafkacore.decode.protobuf import ProtobufDecoder

        fields = [each.with_nullable(True) for each in schema]
        taken = {f"_{name}" for name in self._names} | ({CORRUPT} if self.on_error == "null" else set())
        for name in schema.names:
            if name in taken:
                raise errors.ConfigError(
                    f"the value has a field {name}, which here is a column of the record: leave it out of the schema,"
                    " or say which columns of the record are wanted, record_columns=[...]"
                )
            if schema.names.count(name) > 1:
                raise errors.ConfigError(f"column {name} is there twice")
        lenient, framed = self.on_error != "raise", self._registry is not None
        made: Any
        if self._format == "json":
            made, plain = json_decoder(fields, keeps_good_fields=self.on_error == "null")
            if self.on_error != "null" and not framed:         # which have a column _corrupt, and a prefix
                self._plain = plain
            made = Unframed(made) if framed else made
        else:
            schemas = self._schemas() if framed else None
            if self._format == "avro":
                made = AvroDecoder(fields, None if framed else self._avro(), schemas, framed, lenient)
            else:
                made = ProtobufDecoder(fields, None if framed else self._message(), schemas, framed, lenient)
            made.hint = "with on_error='null'"
        self._decoder = made
        self._fields = fields

    def schema(self, record: Any, requested: Any = None) -> Any:
        """The `pyarrow.Schema` of `batch`.

        Args:
            record: that of undecoded batches, with key and value as they are wanted.
            requested: a schema that may say which of TEXTS a text column is; what else it says is not heeded.
        """
        import pyarrow as pa

        texts = {name: getattr(pa, name)() for name in TEXTS}
        asked = {field.name: field.type for field in requested or () if field.type in texts.values()}
        kinds = [asked.get(each.name, texts[self._text]) if each.type == pa.string() else each.type for each in self._fields]
        decoded = [field.with_type(kind) for field, kind in zip(self._fields, kinds, strict=True)]
        fields = [*decoded, *(record.field(name).with_name(f"_{name}") for name in self._names)]
        return pa.schema([*fields, pa.field(CORRUPT, pa.binary())] if self.on_error == "null" else fields)

    def plain(self, columns: RecordColumns, rows: int, key: str, schema: Any) -> Any:
        """A batch with decoded values in one compiled pass, as what has `__arrow_c_array__` and a length.

        Args:
            columns: as fetched.
            rows: how many of them, from the first.
            key: type of keys, binary or string.
            schema: what `schema` has returned.

        Returns:
            None if there is no such pass for the columns, or it has a doubt about a value: `batch` knows what is right then.
        """
        if self._plain is None:
            return None
        if self._letters is None or self._letters[0] is not schema:
            kinds = [TEXTS.get(str(field.type), kind) for field, kind in zip(schema, self._plain[1], strict=False)]
            self._letters = schema, "".join(kinds)
        return json_batch(columns, rows, self._plain[0], self._letters[1], self._names, key, schema)

    def batch(self, columns: RecordColumns, batch: Any, schema: Any) -> Any:
        """A batch with decoded values.

        Args:
            columns: as fetched.
            batch: the same as an undecoded batch, or the first rows of it; values are binary.
            schema: what `schema` has returned.

        Raises:
            errors.SerializationError: on_error is "raise", and a value cannot be decoded; it names the record.
            errors.KafkaError: the registry cannot be asked, or has no schema that can be used; it names the record.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from kafkacore.decode.base import RowFailed

        values = batch.column("value")
        try:
            decoded = self._decoder.decode(values)
        except RowFailed as failed:
            error = failed.error
            error.topic, error.partition, error.offset = columns.topic, columns.partition, int(columns.offsets[failed.row])
            raise error from None
        if decoded.faults and self.on_error == "raise":
            row = min(decoded.faults)
            first = "the first values say, from which the columns were inferred (a schema names others)"
            says = first if self.inferred else f"{self._format}= says"
            raise errors.SerializationError(
                f"the value is not what {says}: {decoded.faults[row]}",
                topic=columns.topic,
                partition=columns.partition,
                offset=int(columns.offsets[row]),
            )
        arrays = [*decoded.columns, *(batch.column(name) for name in self._names)]
        mask = decoded.mask
        if self.on_error == "null":
            nothing = pa.scalar(None, pa.binary())
            arrays.append(pa.nulls(len(values), pa.binary()) if mask is None else pc.if_else(mask, values, nothing))
        elif mask is not None:
            self.skipped += len(decoded.faults)
            good = pc.invert(mask)
            arrays = [each.filter(good) for each in arrays]    # before the cast: Arrow (26) takes no rows out of string views
        arrays = [each if each.type == field.type else each.cast(field.type) for each, field in zip(arrays, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chosen(record_columns: bool | Iterable[str]) -> tuple[str, ...]:
    """Which of RECORD_COLUMNS, in their order."""
    if isinstance(record_columns, bool):
        return RECORD_COLUMNS if record_columns else ()
    names = [record_columns] if isinstance(record_columns, str) else list(record_columns)
    columns = {f"_{name}": name for name in RECORD_COLUMNS}
    for name in names:
        if name not in columns:
            raise errors.UsageError(f"record_columns is True, False or some of {', '.join(columns)}, not {name!r}")
    return tuple(name for column, name in columns.items() if column in names)


def decoding_of(
    topics: Sequence[str],
    json: Any,
    avro: Any,
    protobuf: Any,
    registry: Any,
    on_error: str,
    headers: bool | None,
    value: str,
    record_columns: bool | Iterable[str] = True,
    text: str = "string",
) -> Decoding | None:
    """What `KafkaConsumer.read` is to make of values; None where they stay as they are."""
    if json is avro is protobuf is registry is None:
        if on_error != "raise":
            raise errors.UsageError("on_error is about values that are decoded: say how, by json=, avro= or protobuf=")
        if record_columns is not True:
            raise errors.UsageError("record_columns is about values that are decoded: say how, by json=, avro= or protobuf=")
        if text != "string":
            raise errors.UsageError("text is about values that are decoded: say how, by json=, avro= or protobuf=")
        return None
    if value != "binary":
        raise errors.UsageError(f"values are decoded, or read as {value!r}, not both")
    return Decoding(topics, json, avro, protobuf, registry, on_error, bool(headers), record_columns, text)
