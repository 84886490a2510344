"""Keys and values of a schema registry's wire format as JSON text, for `consume`: each with the schema that it names.

A schema's values are decoded by the decoders of `consumer.read`, with the columns that the schema itself says, and written as `send_frame`
writes a row. An Avro schema that is no record (as those of keys mostly are) is read as a record of one field, which takes the same bytes.
"""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.cli.options import Failure

FORMATS = ("avro", "protobuf", "json")
_NEEDED = {"avro": ["fastavro"], "protobuf": ["google.protobuf"], "json": []}
_ONLY = "value"


class Texts(NamedTuple):
    """Values as text.

    Attributes:
        texts: JSON in UTF-8; None for a null, and for what could not be decoded.
        faults: why, by row.
    """

    texts: list[bytes | None]
    faults: dict[int, str]


Maker = Callable[[list[bytes]], Texts]


class RegistryText:
    """Makes text of values of one format.

    Args:
        asked: the registry, a `RegistryOptions`.
        form: one of FORMATS.
        lenient: many values may have schemas that the registry does not know: it is asked once, and not again and again.

    Raises:
        Failure: a library is missing.
        errors.ConfigError: the URL is none.
    """

    def __init__(self, asked: Any, form: str, lenient: bool = False) -> None:
        for name in ("pyarrow", "httpx", *_NEEDED[form]):
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                library = name.rpartition(".")[2]
                raise Failure(f"values of a schema registry take {library}: pip install {library}")
        from kafkacore.decode import registry

        self._schemas = registry.shared(asked)
        makes: dict[str, Callable[[Any], Maker]] = {"avro": self._avro, "protobuf": self._protobuf, "json": self._json}
        self._make = makes[form]
        self._lenient = lenient
        self._form = form
        self._files: dict[int, Any] = {}
        self._decoders: dict[Any, Maker] = {}

    def of(self, values: Sequence[bytes | None]) -> Texts:
        """The text of values.

        Raises:
            errors.KafkaError: the registry does not answer.
        """
        from kafkacore.decode import registry
        from kafkacore.decode.protobuf import split_indexes
        from kafkacore.decode.values import Undecodable

        found = Texts([None] * len(values), {})
        groups: defaultdict[Any, list[tuple[int, bytes]]] = defaultdict(list)
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                number, data = registry.split(value)
                name: Any = number
                if self._form == "protobuf":
                    indexes, data = split_indexes(data)
                    name = number, indexes
                if name not in self._decoders:
                    self._decoders[name] = self._make(name)
                groups[name].append((row, data))
            except registry.WrongPlace:
                raise
            except errors.ConfigError as error:                # this schema cannot be used
                found.faults[row] = error.message
            except Undecodable as error:
                found.faults[row] = str(error)
        for name, rows in groups.items():
            made = self._decoders[name]([data for _, data in rows])
            for at, (row, _) in enumerate(rows):
                found.texts[row] = made.texts[at]
                if at in made.faults:
                    found.faults[row] = made.faults[at]
        return found

    def _avro(self, number: int) -> Maker:
        from kafkacore.decode.avro import AvroDecoder, AvroSchema

        schema = self._schemas.by_id(number, "AVRO", patient=not self._lenient)
        what = f"schema {number} of the registry"
        top = json.loads(schema.text)
        is_record = isinstance(top, dict) and top.get("type") in ("record", "error")
        text = schema.text
        if not is_record:
            text = json.dumps({"type": "record", "name": "kafkacore_only", "fields": [{"name": _ONLY, "type": top}]})
        parsed = AvroSchema(text, schema.references, what)
        decoder = AvroDecoder(list(parsed.derived()), parsed, None, False)
        return lambda values: _decoded(decoder, values, whole=is_record)

    def _protobuf(self, name: tuple[int, tuple[int, ...]]) -> Maker:
        from kafkacore.decode.protobuf import ProtobufDecoder, by_indexes, derived, from_registry

        number, indexes = name
        if number not in self._files:
            schema = self._schemas.by_id(number, "PROTOBUF", patient=not self._lenient)
            self._files[number] = from_registry(schema, f"schema {number} of the registry")
        message = by_indexes(self._files[number], indexes)
        decoder = ProtobufDecoder(list(derived(message)), message, None, False)
        return lambda values: _decoded(decoder, values, whole=True)

    def _json(self, number: int) -> Maker:
        self._schemas.by_id(number, "JSON", patient=not self._lenient)
        return _checked


def _decoded(decoder: Any, values: list[bytes], *, whole: bool) -> Texts:
    import pyarrow as pa

    from kafkacore.producer.frame_json import json_column

    found = decoder.decode(pa.array(values, pa.binary()))
    rows = pa.StructArray.from_arrays(found.columns, fields=decoder.fields) if found.columns else pa.array([{}] * found.rows, pa.struct([]))
    try:
        texts = json_column(rows if whole else rows.field(0)).to_pylist()
    except errors.SerializationError as error:                 # a time that ISO 8601 does not have: not known of which row
        if len(values) == 1:
            return Texts([None], {0: error.message})
        parts = [_decoded(decoder, [value], whole=whole) for value in values]
        return Texts([part.texts[0] for part in parts], {row: part.faults[0] for row, part in enumerate(parts) if part.faults})
    return Texts([None if row in found.faults else text or b"null" for row, text in enumerate(texts)], found.faults)


def _checked(values: list[bytes]) -> Texts:
    """What is JSON already."""
    found = Texts([*values], {})
    for row, value in enumerate(values):
        try:
            found.texts[row] = json.dumps(json.loads(value), ensure_ascii=False, separators=(",", ":")).encode()
        except (ValueError, RecursionError) as error:
            found.texts[row], found.faults[row] = None, f"not JSON: {error}"
    return found
